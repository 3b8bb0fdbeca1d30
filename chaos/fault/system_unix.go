//go:build unix

package fault

import (
	"errors"
	"os"
	"syscall"
)

func tryLock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errNoLock
	}
	return err
}

// ownSession makes a process independent of this one's terminal and group.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// Signals to a process of the fleet.
func pauseProcess(pid int) error     { return ignoreGone(syscall.Kill(pid, syscall.SIGSTOP)) }
func continueProcess(pid int) error  { return ignoreGone(syscall.Kill(pid, syscall.SIGCONT)) }
func killProcess(pid int) error      { return ignoreGone(syscall.Kill(pid, syscall.SIGKILL)) }
func terminateProcess(pid int) error { return ignoreGone(syscall.Kill(pid, syscall.SIGTERM)) }

func ignoreGone(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}
