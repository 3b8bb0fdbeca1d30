//go:build unix

package fleet

import "syscall"

// ownGroup keeps a terminal's Ctrl-C from reaching the children directly: the parent stops them in order.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
