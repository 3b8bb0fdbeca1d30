package admin

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerUID returns the user id of the process at the other end of a unix socket, by SO_PEERCRED (unix(7)).
func peerUID(c net.Conn) (uid uint32, ok bool) {
	u, isUnix := c.(*net.UnixConn)
	if !isUnix {
		return 0, false
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, false
	}
	raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			uid, ok = cred.Uid, true
		}
	})
	return uid, ok
}
