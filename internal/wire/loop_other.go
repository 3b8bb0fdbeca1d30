//go:build !linux

package wire

// canFollow says that streams can be followed, which takes Linux's epoll.
const canFollow = false

type loop struct{}

func (*loop) post(*seat) {}

// seat is one stream that is followed.
type seat struct {
	loop *loop
	c    *serverConn
	w    *responseWriter
	body *responseBody
	f    Follower
	slot int
}

func (*seat) begin() bool               { return false }
func (*seat) read([]byte) (int, error)  { return 0, errWait }
func (*seat) write([]byte) (int, error) { return 0, errWait }

func (*link) land() bool { return true }

func (*outlet) attempt(uintptr) {}
