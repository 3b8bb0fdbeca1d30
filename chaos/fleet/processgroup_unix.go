//go:build unix

package fleet

import "syscall"

// ownProcessGroup keeps a terminal's Ctrl-C from reaching the children directly: the parent stops them in order.
func ownProcessGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// isProcessAlive reports whether a process exists that has not ended; one that has ended and was not waited for does not
// count.
func isProcessAlive(pid int) bool {
	if f := readProcessStat(pid); len(f) > 0 && (f[0] == "Z" || f[0] == "X") {
		return false
	}
	err := syscall.Kill(pid, 0)
	return err == nil || err == syscall.EPERM
}

func terminateProcess(pid int) error { return syscall.Kill(pid, syscall.SIGTERM) }

func killProcess(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) }
