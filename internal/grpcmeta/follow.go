package grpcmeta

import (
	"encoding/binary"

	"github.com/spillway-lb/spillway/internal/openai"
)

// maxModelNameBytes bounds the name of a model in a message, in bytes.
const maxModelNameBytes = 4 << 10

// MessageModelReader reads the models named by the messages of a call, while the call passes in pieces. It
// keeps at most one name. Every occurrence of field 1 counts: protobuf uses the last one.
type MessageModelReader struct {
	// CheckModel returns the error for a message that names a refused model; first marks the first message of
	// the call.
	CheckModel func(model string, first bool) *openai.Error

	messages    int    // number of messages begun
	frameHeader []byte // of the message, as far as received
	messageLeft int64  // bytes of the message still to come
	fieldHeader []byte // the beginning of a field: its tag, and its length or value
	skipLeft    int64  // bytes of a field to skip
	name        []byte
	nameLeft    int64 // bytes of a name still to come
}

// FeedBytes processes the next bytes of a call, and returns the error if their message is refused. It must not
// be called after that.
func (f *MessageModelReader) FeedBytes(p []byte) *openai.Error {
	for len(p) > 0 {
		if f.messageLeft == 0 && len(f.frameHeader) < FrameHeaderBytes {
			n := min(FrameHeaderBytes-len(f.frameHeader), len(p))
			f.frameHeader, p = append(f.frameHeader, p[:n]...), p[n:]
			if len(f.frameHeader) < FrameHeaderBytes {
				return nil
			}
			size, compressed := ParseFrameHeader(f.frameHeader)
			if compressed {
				return openai.InvalidJSON("a message is compressed: the models that this key may use are limited, send messages uncompressed")
			}
			f.messageLeft, f.messages = size, f.messages+1
			f.fieldHeader, f.skipLeft, f.nameLeft = f.fieldHeader[:0], 0, 0
			if size == 0 {
				f.frameHeader = f.frameHeader[:0]
			}
			continue
		}
		n := min(int64(len(p)), f.messageLeft)
		if e := f.readMessage(p[:n]); e != nil {
			return e
		}
		p = p[n:]
		if f.messageLeft -= n; f.messageLeft == 0 {
			if f.skipLeft > 0 || f.nameLeft > 0 || len(f.fieldHeader) > 0 {
				return malformedMessage()
			}
			f.frameHeader = f.frameHeader[:0]
		}
	}
	return nil
}

func malformedMessage() *openai.Error {
	return openai.InvalidJSON("a message is no protobuf that can be read")
}

// readMessage processes bytes of one message.
func (f *MessageModelReader) readMessage(p []byte) *openai.Error {
	for len(p) > 0 {
		switch {
		case f.skipLeft > 0:
			n := min(f.skipLeft, int64(len(p)))
			f.skipLeft, p = f.skipLeft-n, p[n:]
		case f.nameLeft > 0:
			n := min(f.nameLeft, int64(len(p)))
			f.name, p = append(f.name, p[:n]...), p[n:]
			if f.nameLeft -= n; f.nameLeft == 0 {
				if e := f.CheckModel(string(f.name), f.messages == 1); e != nil {
					return e
				}
			}
		default:
			f.fieldHeader, p = append(f.fieldHeader, p[0]), p[1:]
			if e := f.readFieldHeader(); e != nil {
				return e
			}
		}
	}
	return nil
}

// readFieldHeader parses the beginning of a field, once it is complete.
func (f *MessageModelReader) readFieldHeader() *openai.Error {
	tag, n := binary.Uvarint(f.fieldHeader)
	switch {
	case n == 0 && len(f.fieldHeader) < binary.MaxVarintLen64:
		return nil
	case n <= 0 || tag>>3 == 0:
		return malformedMessage()
	}
	switch tag & 7 {
	case 1:
		f.skipLeft = 8
	case 5:
		f.skipLeft = 4
	case 0, 2:
		size, m := binary.Uvarint(f.fieldHeader[n:])
		if m == 0 && len(f.fieldHeader)-n < binary.MaxVarintLen64 {
			return nil
		}
		if m <= 0 {
			return malformedMessage()
		}
		if tag&7 == 0 {
			break
		}
		if size > 1<<32 || tag>>3 == 1 && size > maxModelNameBytes {
			return malformedMessage()
		}
		if tag>>3 != 1 {
			f.skipLeft = int64(size)
			break
		}
		f.name, f.nameLeft = f.name[:0], int64(size)
		if size == 0 {
			f.fieldHeader = f.fieldHeader[:0]
			return f.CheckModel("", f.messages == 1)
		}
	default:
		return malformedMessage()
	}
	f.fieldHeader = f.fieldHeader[:0]
	return nil
}
