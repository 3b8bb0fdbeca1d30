package http1

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// hangupWatcher is notified by the kernel when the other side of a connection closes it, for all connections of
// a server. Watching a connection costs one system call for its whole life.
type hangupWatcher struct {
	epollFD int
	file    *os.File
	done    chan struct{}

	mu     sync.Mutex
	lastID uint64
	conns  map[uint64]*serverConn
	closed bool
}

func newHangupWatcher() (*hangupWatcher, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd) // never used
		return nil, os.NewSyscallError("fcntl", err)
	}
	w := &hangupWatcher{epollFD: fd, file: os.NewFile(uintptr(fd), "epoll"), done: make(chan struct{}), conns: map[uint64]*serverConn{}}
	raw, err := w.file.SyscallConn()
	if err != nil {
		_ = w.file.Close() // never used
		return nil, err
	}
	go w.watchLoop(raw)
	return w, nil
}

func (w *hangupWatcher) watchLoop(raw syscall.RawConn) {
	defer close(w.done)
	events := make([]unix.EpollEvent, 128)
	for {
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			var err error
			n, err = unix.EpollWait(int(fd), events, 0)
			return n > 0 || err != nil && err != unix.EINTR
		})
		if err != nil {
			return // closed
		}
		for i := range max(n, 0) {
			w.notifyConn(uint64(uint32(events[i].Fd)) | uint64(uint32(events[i].Pad))<<32)
		}
	}
}

func (w *hangupWatcher) notifyConn(id uint64) {
	w.mu.Lock()
	c := w.conns[id]
	w.mu.Unlock()
	if c != nil {
		c.handleClientGone()
	}
}

// addConn watches a connection until it is closed or removed.
func (w *hangupWatcher) addConn(c *serverConn) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return os.ErrClosed
	}
	w.lastID++
	c.watchID = w.lastID
	raw, err := c.tcpConn.SyscallConn()
	if err != nil {
		return err
	}
	cerr := raw.Control(func(fd uintptr) {
		err = unix.EpollCtl(w.epollFD, unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{
			Events: unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(uint32(c.watchID)), Pad: int32(uint32(c.watchID >> 32)),
		})
	})
	if cerr != nil {
		err = cerr
	}
	if err == nil {
		w.conns[c.watchID] = c
	}
	return err
}

// removeConn stops watching a connection. The kernel drops a descriptor by itself when it is closed.
func (w *hangupWatcher) removeConn(c *serverConn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, there := w.conns[c.watchID]; !there {
		return
	}
	delete(w.conns, c.watchID)
	if raw, err := c.tcpConn.SyscallConn(); err == nil && !w.closed {
		_ = raw.Control(func(fd uintptr) { _ = unix.EpollCtl(w.epollFD, unix.EPOLL_CTL_DEL, int(fd), nil) }) // it may be closed already
	}
}

// closeAndWait closes the watcher and waits for its goroutine. A nil watcher has none.
func (w *hangupWatcher) closeAndWait() {
	if w == nil {
		return
	}
	w.mu.Lock()
	first := !w.closed
	w.closed = true
	w.mu.Unlock()
	if first {
		_ = w.file.Close() // its goroutine ends
	}
	<-w.done
}
