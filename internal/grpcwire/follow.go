package grpcwire

import (
	"encoding/binary"

	"github.com/spillway-lb/spillway/internal/openai"
)

// maxName bounds a model's name in a message, in bytes.
const maxName = 4 << 10

// Follower reads the models that the messages of a call name, while the call passes in pieces. It keeps one name and no more
// of a message. Each time field 1 stands in a message counts: of two, protobuf takes the last.
type Follower struct {
	// Judge returns what a message is refused for that names a model; first says that it is the call's first message.
	Judge func(model string, first bool) *openai.Error

	messages int    // that have begun
	head     []byte // of the message, as far as it has come
	left     int64  // bytes of the message that have not come
	field    []byte // the beginning of a field: its tag, and its length or number
	skip     int64  // bytes of a field's value to step over
	name     []byte
	wanted   int64 // bytes of a name that have not come
}

// Feed takes the next bytes of a call, and returns what the message that they belong to is refused for. Nothing is to be
// fed after that.
func (f *Follower) Feed(p []byte) *openai.Error {
	for len(p) > 0 {
		if f.left == 0 && len(f.head) < FrameHead {
			n := min(FrameHead-len(f.head), len(p))
			f.head, p = append(f.head, p[:n]...), p[n:]
			if len(f.head) < FrameHead {
				return nil
			}
			size, compressed := Frame(f.head)
			if compressed {
				return openai.InvalidJSON("a message is compressed: the models that this key may use are limited, send messages uncompressed")
			}
			f.left, f.messages = size, f.messages+1
			f.field, f.skip, f.wanted = f.field[:0], 0, 0
			if size == 0 {
				f.head = f.head[:0]
			}
			continue
		}
		n := min(int64(len(p)), f.left)
		if e := f.message(p[:n]); e != nil {
			return e
		}
		p = p[n:]
		if f.left -= n; f.left == 0 {
			if f.skip > 0 || f.wanted > 0 || len(f.field) > 0 {
				return brokenMessage()
			}
			f.head = f.head[:0]
		}
	}
	return nil
}

func brokenMessage() *openai.Error {
	return openai.InvalidJSON("a message is no protobuf that can be read")
}

// message takes bytes of one message.
func (f *Follower) message(p []byte) *openai.Error {
	for len(p) > 0 {
		switch {
		case f.skip > 0:
			n := min(f.skip, int64(len(p)))
			f.skip, p = f.skip-n, p[n:]
		case f.wanted > 0:
			n := min(f.wanted, int64(len(p)))
			f.name, p = append(f.name, p[:n]...), p[n:]
			if f.wanted -= n; f.wanted == 0 {
				if e := f.Judge(string(f.name), f.messages == 1); e != nil {
					return e
				}
			}
		default:
			f.field, p = append(f.field, p[0]), p[1:]
			if e := f.begin(); e != nil {
				return e
			}
		}
	}
	return nil
}

// begin reads the beginning of a field, once it is whole.
func (f *Follower) begin() *openai.Error {
	tag, n := binary.Uvarint(f.field)
	switch {
	case n == 0 && len(f.field) < binary.MaxVarintLen64:
		return nil
	case n <= 0 || tag>>3 == 0:
		return brokenMessage()
	}
	switch tag & 7 {
	case 1:
		f.skip = 8
	case 5:
		f.skip = 4
	case 0, 2:
		size, m := binary.Uvarint(f.field[n:])
		if m == 0 && len(f.field)-n < binary.MaxVarintLen64 {
			return nil
		}
		if m <= 0 {
			return brokenMessage()
		}
		if tag&7 == 0 {
			break
		}
		if size > 1<<32 || tag>>3 == 1 && size > maxName {
			return brokenMessage()
		}
		if tag>>3 != 1 {
			f.skip = int64(size)
			break
		}
		f.name, f.wanted = f.name[:0], int64(size)
		if size == 0 {
			f.field = f.field[:0]
			return f.Judge("", f.messages == 1)
		}
	default:
		return brokenMessage()
	}
	f.field = f.field[:0]
	return nil
}
