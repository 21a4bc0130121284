// Package proc runs the servers that are measured, as child processes, and
// reads what they use from /proc.
package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// tick is the unit of the times in /proc/<pid>/stat. Linux shows them to
// programs in hundredths of a second, however its own clock ticks.
const tick = 10 * time.Millisecond

// CPU is the user and system time that the process has used, all its threads
// together, in steps of 10 ms.
func CPU(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("the CPU time of a server is not known: %w", err)
	}
	return parseStat(text)
}

func parseStat(text []byte) (time.Duration, error) {
	// The second field is the program's name in parentheses and may hold
	// spaces and parentheses itself: what counts begins after the last one.
	_, after, ok := cutLast(text, ") ")
	fields := bytes.Fields(after)
	if !ok || len(fields) < 13 {
		return 0, fmt.Errorf("no process status: %.80q", text)
	}
	user, err1 := strconv.ParseInt(string(fields[11]), 10, 64)   // field 14, utime
	system, err2 := strconv.ParseInt(string(fields[12]), 10, 64) // field 15, stime
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("no process times: %.80q", text)
	}
	return time.Duration(user+system) * tick, nil
}

func cutLast(b []byte, sep string) (before, after []byte, ok bool) {
	i := bytes.LastIndex(b, []byte(sep))
	if i < 0 {
		return b, nil, false
	}
	return b[:i], b[i+len(sep):], true
}

// Resident is the process's resident set, in bytes.
func Resident(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, fmt.Errorf("the memory of a server is not known: %w", err)
	}
	return parseStatm(text, int64(os.Getpagesize()))
}

func parseStatm(text []byte, page int64) (int64, error) {
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0, fmt.Errorf("no memory status: %.80q", text)
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("no memory status: %.80q", text)
	}
	return pages * page, nil
}

// Files is how many descriptors the process has open.
func Files(pid int) (int, error) {
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return 0, fmt.Errorf("the open files of a server are not known: %w", err)
	}
	return len(list), nil
}
