package fault

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
)

// tcpListenState is the state of a listening socket in /proc/net/tcp.
const tcpListenState = "0A"

// listenTable caches which addresses are listened on, for many listeners that wait for their targets: the kernel walks
// its whole table for each reading.
type listenTable struct {
	mu     sync.Mutex
	read   time.Time
	listen map[string]bool // as encodeProcAddr writes it
}

func (t *listenTable) isListening(a netip.AddrPort) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.read) > targetPoll/2 {
		table, err := os.ReadFile("/proc/net/tcp")
		if err != nil {
			return isListening(a)
		}
		t.listen = map[string]bool{}
		findSocket(table, func(local, _, state string) bool {
			if state == tcpListenState {
				t.listen[local] = true
			}
			return false
		})
		t.read = time.Now()
	}
	return t.listen[encodeProcAddr(a)] || t.listen[encodeProcAddr(netip.AddrPortFrom(netip.IPv4Unspecified(), a.Port()))]
}

// isListening reports whether a process listens at a TCP address. It reads the kernel's table, because a connection would
// be seen by the process; where there is no table, it connects.
func isListening(a netip.AddrPort) bool {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		c, err := net.DialTimeout("tcp", a.String(), time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	}
	any := encodeProcAddr(netip.AddrPortFrom(netip.IPv4Unspecified(), a.Port()))
	_, found := findSocket(table, func(local, _, state string) bool {
		return state == tcpListenState && (local == encodeProcAddr(a) || local == any)
	})
	return found
}

// findSocketOwner returns the index of the node whose process holds the socket from local to remote, or -1.
func findSocketOwner(p *fleet.Files, local, remote netip.AddrPort, ids []string) int {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return -1
	}
	l, r := encodeProcAddr(local), encodeProcAddr(remote)
	inode, ok := findSocket(table, func(a, b, _ string) bool { return a == l && b == r })
	if !ok {
		return -1
	}
	want := "socket:[" + inode + "]"
	for i, id := range ids {
		pid := p.RunningPID(id)
		if pid == 0 {
			continue
		}
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, fd := range fds {
			if at, err := os.Readlink(fd); err == nil && at == want {
				return i
			}
		}
	}
	return -1
}

// findSocket returns the inode of the first socket in a table of /proc/net for which a condition holds.
func findSocket(table []byte, which func(local, remote, state string) bool) (inode string, ok bool) {
	for line := range bytes.Lines(table) {
		f := strings.Fields(string(line))
		if len(f) > 9 && which(f[1], f[2], f[3]) {
			return f[9], true
		}
	}
	return "", false
}

// encodeProcAddr writes an IPv4 address as /proc/net does on little-endian machines.
func encodeProcAddr(a netip.AddrPort) string {
	b := a.Addr().Unmap().As4()
	return strings.ToUpper(hex.EncodeToString([]byte{b[3], b[2], b[1], b[0]})) + fmt.Sprintf(":%04X", a.Port())
}
