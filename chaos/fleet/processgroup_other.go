//go:build !unix

package fleet

import "syscall"

// ownProcessGroup has no effect on systems without process groups.
func ownProcessGroup() *syscall.SysProcAttr { return nil }
