package global

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// auditFile is the node's own copy of the audit: one JSON record a line, only ever appended to. The state keeps the
// newest records alone.
const auditFile = "audit.log"

// auditor writes records to the file as they come. It belongs to one goroutine.
type auditor struct {
	path    string
	log     *slog.Logger
	written uint64 // the Seq of the last record in the file
	wake    chan struct{}
	failed  bool // and that is logged
}

func newAuditor(dir string, log *slog.Logger) *auditor {
	a := &auditor{log: log, wake: make(chan struct{}, 1)}
	if dir == "" {
		return a
	}
	a.path = filepath.Join(dir, auditFile)
	last, err := lastRecord(a.path)
	if err != nil {
		log.Error("audit log cannot be read, new records are appended all the same", "file", a.path, telemetry.Err(err))
	}
	a.written = last
	return a
}

// lastRecord is the Seq of the last whole record of a file; 0 when there is none.
func lastRecord(path string) (seq uint64, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r consensus.Record
		if json.Unmarshal(lines.Bytes(), &r) == nil && r.Hash != "" {
			seq = r.Seq
		}
	}
	return seq, lines.Err()
}

// run appends what is new until ctx ends, and then once more.
func (a *auditor) run(ctx context.Context, state func() *consensus.State) {
	if a.path == "" {
		return
	}
	for ctx.Err() == nil {
		a.append(state().Audit)
		select {
		case <-ctx.Done():
		case <-a.wake:
		case <-time.After(10 * time.Second): // a disk that was full may have room again
		}
	}
	a.append(state().Audit)
}

func (a *auditor) append(records []consensus.Record) {
	for len(records) > 0 && records[0].Seq <= a.written {
		records = records[1:]
	}
	if len(records) == 0 {
		return
	}
	err := appendRecords(a.path, records)
	if err == nil {
		a.written, a.failed = records[len(records)-1].Seq, false
	} else if !a.failed {
		a.failed = true
		a.log.Error("audit log cannot be written: the records stay in Raft, and it is tried again", "file", a.path, telemetry.Err(err))
	}
}

// appendRecords writes whole lines and has them on the disk before it returns. A line that an earlier failure cut short
// is ended first, so that it spoils no other.
func appendRecords(path string, records []consensus.Record) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	var out []byte
	if end, err := f.Seek(0, 2); err == nil && end > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, end-1); err == nil && last[0] != '\n' {
			out = append(out, '\n')
		}
	}
	for i := range records {
		b, err := json.Marshal(&records[i])
		if err != nil {
			return errors.Join(err, f.Close())
		}
		out = append(append(out, b...), '\n')
	}
	_, err = f.Write(out)
	return errors.Join(err, f.Sync(), f.Close())
}

// auditRecords is what the state holds of the audit.
func (s *Server) auditRecords(context.Context) (*admin.AuditAnswer, error) {
	st := s.node.State()
	if err := consensus.Verify(st.Audit); err != nil {
		return nil, fmt.Errorf("the audit in this node's state does not hold together: %w", err)
	}
	out := &admin.AuditAnswer{Node: s.cfg.Name, File: s.audit.path, Records: []admin.AuditRecord{}}
	for _, r := range st.Audit {
		out.Records = append(out.Records, admin.AuditRecord(r))
	}
	return out, nil
}
