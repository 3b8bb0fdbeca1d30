//go:build !unix

package fleet

import (
	"errors"
	"syscall"
)

// ownProcessGroup has no effect on systems without process groups.
func ownProcessGroup() *syscall.SysProcAttr { return nil }

// isProcessAlive reports nothing on systems without signals: only a process's parent knows it.
func isProcessAlive(int) bool { return false }

func terminateProcess(int) error { return errors.ErrUnsupported }

func killProcess(int) error { return errors.ErrUnsupported }
