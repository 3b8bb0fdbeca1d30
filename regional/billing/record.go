package billing

import (
	"encoding/json"
	"errors"
	"time"
)

// UsageRecord is the usage of one request.
type UsageRecord struct {
	Boot       uint64    `json:"boot"` // of the gateway
	Seq        uint64    `json:"seq"`  // a count from 1; boot and seq identify the record
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
	Stated     bool      `json:"stated"`      // reported by the engine, not estimated
	// ClientLeft: the client left before the first byte of the answer, after a worker had begun the prompt.
	ClientLeft bool `json:"client_left,omitempty"`
	// Kind of an unparsed stream: grpc, websocket or other; with the bytes from and to the client.
	Kind     string `json:"kind,omitempty"`
	BytesIn  int64  `json:"bytes_in,omitempty"`
	BytesOut int64  `json:"bytes_out,omitempty"`
}

// maxLine is the longest line of a file, in bytes.
const maxLine = 8 << 10

// encodeRecord encodes a record as a line.
func encodeRecord(r *UsageRecord) ([]byte, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if len(b) >= maxLine {
		return nil, errors.New("the record is too long")
	}
	return append(b, '\n'), nil
}

// DecodeRecord decodes a line without its newline.
func DecodeRecord(line []byte) (UsageRecord, error) {
	var r UsageRecord
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
