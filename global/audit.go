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

// auditFileName is the node's own copy of the audit: one JSON record per line, append only. The Raft state keeps only
// the newest records.
const auditFileName = "audit.log"

// auditor appends audit records to the file as they arrive. It belongs to one goroutine.
type auditor struct {
	path        string
	log         *slog.Logger
	lastSeq     uint64 // Seq of the last record in the file
	wake        chan struct{}
	writeFailed bool // the last write failed, and the failure is logged
}

func newAuditor(dir string, log *slog.Logger) *auditor {
	a := &auditor{log: log, wake: make(chan struct{}, 1)}
	if dir == "" {
		return a
	}
	a.path = filepath.Join(dir, auditFileName)
	last, err := readLastSeq(a.path)
	if err != nil {
		log.Error("audit log cannot be read, new records are appended all the same", "file", a.path, telemetry.ErrorAttr(err))
	}
	a.lastSeq = last
	return a
}

// readLastSeq returns the Seq of the last complete record of a file, or 0 if there is none.
func readLastSeq(path string) (seq uint64, err error) {
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
		var r consensus.AuditRecord
		if json.Unmarshal(lines.Bytes(), &r) == nil && r.Hash != "" {
			seq = r.Seq
		}
	}
	return seq, lines.Err()
}

// appendLoop appends new records until ctx ends, and once more after that.
func (a *auditor) appendLoop(ctx context.Context, state func() *consensus.State) {
	if a.path == "" {
		return
	}
	for ctx.Err() == nil {
		a.appendNew(state().Audit)
		select {
		case <-ctx.Done():
		case <-a.wake:
		case <-time.After(10 * time.Second): // retry: a full disk may have free space again
		}
	}
	a.appendNew(state().Audit)
}

func (a *auditor) appendNew(records []consensus.AuditRecord) {
	for len(records) > 0 && records[0].Seq <= a.lastSeq {
		records = records[1:]
	}
	if len(records) == 0 {
		return
	}
	err := appendRecords(a.path, records)
	if err == nil {
		a.lastSeq, a.writeFailed = records[len(records)-1].Seq, false
	} else if !a.writeFailed {
		a.writeFailed = true
		a.log.Error("audit log cannot be written: the records stay in Raft, and it is tried again", "file", a.path, telemetry.ErrorAttr(err))
	}
}

// appendRecords writes complete lines and syncs them to disk before it returns. If an earlier failure left a partial
// line, it is terminated first, so that it does not corrupt the next record.
func appendRecords(path string, records []consensus.AuditRecord) error {
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

// listAuditRecords returns the audit records in the Raft state.
func (s *memberAdmin) listAuditRecords(context.Context) (*admin.AuditAnswer, error) {
	st := s.node.State()
	if err := consensus.VerifyAudit(st.Audit); err != nil {
		return nil, fmt.Errorf("the hash chain of this node's audit records is broken, so they are not shown: %w", err)
	}
	out := &admin.AuditAnswer{Node: s.name, File: s.auditor.path, Records: []admin.AuditRecord{}}
	for _, r := range st.Audit {
		out.Records = append(out.Records, admin.AuditRecord(r))
	}
	return out, nil
}
