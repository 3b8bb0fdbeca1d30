package consensus

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// A proposal is one frame in each direction: four bytes of length, one byte of version, then a command or an answer.
const (
	frameVersion = 1
	maxAnswer    = 64 << 10
)

// proposalAnswer is a result, or the reason why there is none.
type proposalAnswer struct {
	Result    commandResult `json:"result"`
	NotLeader bool          `json:"not_leader,omitempty"` // nothing was done
	Unknown   bool          `json:"unknown,omitempty"`    // the write may have been done
}

func writeFrame(w io.Writer, body []byte) error {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 5+len(body)), uint32(1+len(body)))
	_, err := w.Write(append(append(b, frameVersion), body...))
	return err
}

// readFrame reads one frame of at most limit bytes of content.
func readFrame(r io.Reader, limit int) ([]byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	switch {
	case head[4] != frameVersion:
		return nil, fmt.Errorf("frame of version %d, want %d", head[4], frameVersion)
	case n < 1 || n-1 > uint32(limit):
		return nil, fmt.Errorf("frame of %d bytes, want at most %d", n, limit)
	}
	body := make([]byte, n-1)
	_, err := io.ReadFull(r, body)
	return body, err
}

func decodeAnswer(b []byte) (proposalAnswer, error) {
	var a proposalAnswer
	if err := json.Unmarshal(b, &a); err != nil {
		return a, fmt.Errorf("decoding answer: %w", err)
	}
	switch {
	case a.NotLeader && a.Unknown:
		return a, errors.New("answer is inconsistent")
	case a.NotLeader || a.Unknown:
		return a, nil
	case a.Result.Code != codeOK && a.Result.Code != codeConflict && a.Result.Code != codeRefused:
		return a, fmt.Errorf("answer with unknown code %q", a.Result.Code)
	}
	return a, nil
}
