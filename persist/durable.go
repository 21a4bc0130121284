package persist

import "os"

// durable is what makes a new file survive a crash of the machine. Its order is
// what matters: content to disk, then the name, then the folder. Tests record
// it.
type durable struct {
	sync       func(f *os.File) error
	place      func(tmp, dest string) error
	syncFolder func(dir string) error
}

// onDisk is the system's.
var onDisk = durable{sync: (*os.File).Sync, place: place, syncFolder: syncFolder}
