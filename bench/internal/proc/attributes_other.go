//go:build !linux

package proc

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }
