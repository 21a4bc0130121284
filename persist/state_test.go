package persist

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAPanicOfBoltLeavesNothingLocked opens a file that breaks bbolt, past all
// checks.
func TestAPanicOfBoltLeavesNothingLocked(t *testing.T) {
	dir, _ := sample(t)
	path := filepath.Join(dir, FileName)
	r, err := openReader(path, false)
	must(t, err)
	at := r.bolt.FreeList()
	r.Close()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	_, err = f.WriteAt([]byte{0xff}, at+8) // the page's type
	must(t, err)
	st := State{path: path, o: still().defaults()}
	if err := st.open(path, 0); err == nil || !strings.Contains(err.Error(), "broke down") {
		t.Fatalf("opened a file that breaks bbolt: %v", err)
	}
	if st.db != nil || st.file != nil {
		t.Error("it counts as open")
	}
	must(t, lockFile(f, true))
}
