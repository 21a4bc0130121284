package main

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// machine is where a run was made: without it a number says nothing.
type machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory string `json:"memory"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	Redis  string `json:"redis"`
	Stint  string `json:"stint"`
}

func describeMachine(b *binaries) machine {
	m := machine{
		CPU: "unknown", Memory: "unknown", Kernel: "unknown", Redis: "not measured", Stint: "not measured",
		Cores: runtime.NumCPU(), Go: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH,
	}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		m.CPU = fieldOf(string(text), "model name", m.CPU)
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		m.Memory = fieldOf(string(text), "MemTotal", m.Memory)
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(text))
	}
	if b.redis != "" {
		m.Redis = firstLine(b.redis, "--version")
	}
	if b.stint != "" {
		m.Stint = sourceState()
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
