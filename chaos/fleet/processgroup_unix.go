//go:build unix

package fleet

import "syscall"

// ownProcessGroup keeps a terminal's Ctrl-C from reaching the children directly: the parent stops them in order.
func ownProcessGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
