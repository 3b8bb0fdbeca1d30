package consensus

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// maxAudit bounds the records that the state keeps; nodes write them out to a file of their own as they come.
const maxAudit = 256

// Record is one change as the audit keeps it. Each carries the hash of the one before it, so that none can be altered
// or left out without every later one showing it.
type Record struct {
	Seq     uint64    `json:"seq"`   // counts from 1 without gaps
	Index   uint64    `json:"index"` // raft index of the change
	At      time.Time `json:"at"`    // by the proposing node's clock
	Actor   string    `json:"actor"`
	Action  string    `json:"action"`            // such as "apply", "drain" or "member add"
	Subject string    `json:"subject,omitempty"` // what was acted on: a path, a member, a spec's version
	Reason  string    `json:"reason,omitempty"`  // the operator's words
	Detail  string    `json:"detail,omitempty"`  // what differs
	Prev    string    `json:"prev"`              // hash of the record before; empty for the first
	Hash    string    `json:"hash"`              // SHA-256 of this record without its hash, as JSON
}

// sum is the hash that belongs to a record.
func (r Record) sum() string {
	r.Hash = ""
	b, err := json.Marshal(r)
	if err != nil {
		return "" // plain strings and a bounded time: it does not come to this
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// Verify checks that records follow on each other without a gap and were not altered. The first may be any record: that
// what came before it is missing is for the caller to judge by its Seq.
func Verify(records []Record) error {
	for i, r := range records {
		switch {
		case r.Hash != r.sum():
			return fmt.Errorf("record %d does not fit its hash: it was altered", r.Seq)
		case i > 0 && r.Seq != records[i-1].Seq+1:
			return fmt.Errorf("record %d follows on %d: what was between is missing", r.Seq, records[i-1].Seq)
		case i > 0 && r.Prev != records[i-1].Hash:
			return fmt.Errorf("record %d does not follow on record %d as it stands here: one of them was replaced", r.Seq, records[i-1].Seq)
		}
	}
	return nil
}

// audit adds a change to the state's records.
func (s *State) audit(c command) {
	action, subject := s.audited(c)
	if action == "" {
		return
	}
	r := Record{
		Seq: 1, Index: s.Index, At: c.At, Actor: c.Actor, Action: action, Subject: subject, Reason: c.Reason, Detail: c.Detail,
	}
	if n := len(s.Audit); n > 0 {
		r.Seq, r.Prev = s.Audit[n-1].Seq+1, s.Audit[n-1].Hash
	}
	r.Hash = r.sum()
	keep := s.Audit[max(0, len(s.Audit)-maxAudit+1):]
	s.Audit = append(append(make([]Record, 0, len(keep)+1), keep...), r)
}

// audited names what an operator did; plans and keys are nobody's decision and are not audited.
func (s *State) audited(c command) (action, subject string) {
	switch c.Kind {
	case kindStage, kindEndStage:
		return s.auditedStage(c)
	case kindPutSpec:
		if c.Ends != 0 || c.Trial != nil {
			return s.auditedStage(c)
		}
		return "apply", "spec " + strconv.FormatUint(s.SpecVersion, 10)
	case kindPutDrain:
		if c.Until.IsZero() {
			return "drain", c.Path
		}
		return "drain until " + c.Until.Format(time.RFC3339), c.Path
	case kindDeleteDrain:
		return "undrain", c.Path
	case kindRotateKey:
		if c.Actor != "" { // the leader rotates keys without an operator
			return "tickets rotate", ""
		}
	case kindPurgeKeys:
		return "tickets purge", ""
	case kindNote:
		return c.Action, c.Path
	case kindSign:
		if s.Signing == nil {
			return "dnssec " + c.Action, c.Path + " is not signed any more"
		}
		return "dnssec " + c.Action, c.Path + " is " + string(s.Signing.Phase)
	}
	return "", ""
}
