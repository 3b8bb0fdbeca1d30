//go:build !unix

package fleet

import "syscall"

// ownGroup has nothing to do where there are no process groups.
func ownGroup() *syscall.SysProcAttr { return nil }
