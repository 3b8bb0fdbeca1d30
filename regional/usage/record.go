package usage

import (
	"encoding/json"
	"errors"
	"time"
)

// Record is what one request used.
type Record struct {
	Boot       uint64    `json:"boot"` // of the gateway, and
	Seq        uint64    `json:"seq"`  // a count from 1 in it: together they name the record
	At         time.Time `json:"at"`   // when the request ended
	Gateway    string    `json:"gateway"`
	Region     string    `json:"region"`
	Tenant     string    `json:"tenant"`
	Model      string    `json:"model"` // that served
	Request    string    `json:"request_id"`
	Prompt     int       `json:"prompt_tokens"`
	Cached     int       `json:"cached_tokens"`
	Completion int       `json:"completion_tokens"`
	Micros     int64     `json:"cost_micros"` // millionths of a dollar
	Stated     bool      `json:"stated"`      // by the engine; else estimated
	// ClientLeft: the client left before the first byte of the answer, when a worker had begun the prompt.
	ClientLeft bool `json:"client_left,omitempty"`
	// Kind, and the bytes that passed from the client and to it, of what is not read: grpc, websocket or other.
	Kind     string `json:"kind,omitempty"`
	BytesIn  int64  `json:"bytes_in,omitempty"`
	BytesOut int64  `json:"bytes_out,omitempty"`
}

// maxLine is the longest line of a file.
const maxLine = 8 << 10

// encode is a record's line.
func encode(r *Record) ([]byte, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if len(b) >= maxLine {
		return nil, errors.New("the record is too long")
	}
	return append(b, '\n'), nil
}

// Decode reads a line, without its end.
func Decode(line []byte) (Record, error) {
	var r Record
	switch err := json.Unmarshal(line, &r); {
	case len(line) > maxLine:
		return r, errors.New("the line is too long")
	case err != nil:
		return r, err
	case r.Boot == 0 || r.Seq == 0 || r.Tenant == "":
		return r, errors.New("the record has no number or no tenant")
	case r.Prompt < 0 || r.Cached < 0 || r.Completion < 0 || r.Micros < 0 || r.BytesIn < 0 || r.BytesOut < 0:
		return r, errors.New("the record has negative amounts")
	}
	return r, nil
}
