package wire

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// watcher is told by the kernel when the other side of a connection has left, for all connections of a server. To watch one
// costs a system call for its whole life.
type watcher struct {
	fd   int
	file *os.File
	done chan struct{}

	mu    sync.Mutex
	last  uint64
	conns map[uint64]*serverConn
	shut  bool
}

func newWatcher() (*watcher, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd) // it was never used
		return nil, os.NewSyscallError("fcntl", err)
	}
	w := &watcher{fd: fd, file: os.NewFile(uintptr(fd), "epoll"), done: make(chan struct{}), conns: map[uint64]*serverConn{}}
	raw, err := w.file.SyscallConn()
	if err != nil {
		_ = w.file.Close() // as above
		return nil, err
	}
	go w.run(raw)
	return w, nil
}

func (w *watcher) run(raw syscall.RawConn) {
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
			return // it was closed
		}
		for i := range max(n, 0) {
			w.tell(uint64(uint32(events[i].Fd)) | uint64(uint32(events[i].Pad))<<32)
		}
	}
}

func (w *watcher) tell(id uint64) {
	w.mu.Lock()
	c := w.conns[id]
	w.mu.Unlock()
	if c != nil {
		c.gone()
	}
}

// add watches a connection until it is closed or removed.
func (w *watcher) add(c *serverConn) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shut {
		return os.ErrClosed
	}
	w.last++
	c.watched = w.last
	raw, err := c.tcp.SyscallConn()
	if err != nil {
		return err
	}
	cerr := raw.Control(func(fd uintptr) {
		err = unix.EpollCtl(w.fd, unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{
			Events: unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(uint32(c.watched)), Pad: int32(uint32(c.watched >> 32)),
		})
	})
	if cerr != nil {
		err = cerr
	}
	if err == nil {
		w.conns[c.watched] = c
	}
	return err
}

// remove ends that. The kernel forgets a descriptor by itself when it is closed.
func (w *watcher) remove(c *serverConn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, there := w.conns[c.watched]; !there {
		return
	}
	delete(w.conns, c.watched)
	if raw, err := c.tcp.SyscallConn(); err == nil && !w.shut {
		_ = raw.Control(func(fd uintptr) { _ = unix.EpollCtl(w.fd, unix.EPOLL_CTL_DEL, int(fd), nil) }) // it may be closed
	}
}

// close ends the watch and waits for its goroutine. A nil watcher has none.
func (w *watcher) close() {
	if w == nil {
		return
	}
	w.mu.Lock()
	first := !w.shut
	w.shut = true
	w.mu.Unlock()
	if first {
		_ = w.file.Close() // run ends
	}
	<-w.done
}
