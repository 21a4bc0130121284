package persist

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// backgroundNice is the nice value of the thread that writes: on a machine whose
// processors are all busy it gets about a tenth of the time that a thread of
// decisions gets. A thread of decisions that waits for a lock it holds leaves it
// a processor meanwhile.
const backgroundNice = 10

// background keeps the calling goroutine on a thread of its own, which yields to
// all others. It holds until the goroutine ends, and the thread with it.
func background() {
	runtime.LockOSThread()
	// What is not allowed is not needed.
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), backgroundNice)
}
