package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// machine is where a run was made: without it a number says nothing.
type machine struct {
	cpu    string
	cores  int
	memory string
	kernel string
	goes   string
	redis  string
	stint  string
}

func describeMachine(b *binaries) machine {
	m := machine{
		cpu: "unknown", memory: "unknown", kernel: "unknown", redis: "not measured", stint: "not measured",
		cores: runtime.NumCPU(), goes: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH,
	}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		m.cpu = fieldOf(string(text), "model name", m.cpu)
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		m.memory = fieldOf(string(text), "MemTotal", m.memory)
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.kernel = strings.TrimSpace(string(text))
	}
	if b.redis != "" {
		m.redis = firstLine(b.redis, "--version")
	}
	if b.stint != "" {
		m.stint = sourceState()
	}
	return m
}

// fieldOf finds the value of the first line "name : value".
func fieldOf(text, name, otherwise string) string {
	for line := range strings.Lines(text) {
		k, v, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return otherwise
}

func firstLine(binary string, args ...string) string {
	said, err := exec.Command(binary, args...).Output()
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(said)), "\n")
	return line
}

// sourceState names the commit, and says if the files differ from it.
func sourceState() string {
	commit := firstLine("git", "rev-parse", "--short=12", "HEAD")
	if changed, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no").Output(); err == nil && len(changed) > 0 {
		commit += " with changes"
	}
	return "commit " + commit
}

// store writes a report as folder/date-name.md, and with a number behind if
// there is one already: results are never overwritten. It returns the path.
func store(folder, date, name, text string) (string, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("the result cannot be stored: %w", err)
	}
	for n := 1; ; n++ {
		path := filepath.Join(folder, date+"-"+name+".md")
		if n > 1 {
			path = filepath.Join(folder, fmt.Sprintf("%s-%s-%d.md", date, name, n))
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if os.IsExist(err) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("the result cannot be stored: %w", err)
		}
		_, err = f.WriteString(text)
		if closed := f.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return "", fmt.Errorf("the result cannot be stored: %w", err)
		}
		return path, nil
	}
}
