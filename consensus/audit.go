package consensus

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxAuditRecords bounds the audit records in the state. Nodes append them to a separate file as they arrive.
const maxAuditRecords = 256

// AuditRecord is one audited change. Each record carries the hash of the one before it, so a changed or missing
// record shows in every later one.
type AuditRecord struct {
	Seq     uint64    `json:"seq"`   // counts from 1 without gaps
	Index   uint64    `json:"index"` // raft index of the change
	At      time.Time `json:"at"`    // by the proposing node's clock
	Actor   string    `json:"actor"`
	Action  string    `json:"action"`            // such as "apply", "drain" or "member add"
	Subject string    `json:"subject,omitempty"` // what was acted on: a path, a member, a spec's version
	Reason  string    `json:"reason,omitempty"`  // given by the operator
	Detail  string    `json:"detail,omitempty"`  // what differs
	Prev    string    `json:"prev"`              // hash of the previous record; empty for the first
	Hash    string    `json:"hash"`              // SHA-256 of this record without its hash, as JSON
}

// computeHash returns the hash of a record.
func (r AuditRecord) computeHash() string {
	r.Hash = ""
	b, err := json.Marshal(r)
	if err != nil {
		return "" // plain strings and a bounded time: it does not come to this
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// VerifyAudit checks that records are contiguous and unaltered. The first may be any record: the caller judges by its
// Seq whether earlier ones are missing.
func VerifyAudit(records []AuditRecord) error {
	for i, r := range records {
		switch {
		case r.Hash != r.computeHash():
			return fmt.Errorf("record %d does not match its hash: it was altered", r.Seq)
		case i > 0 && r.Seq != records[i-1].Seq+1:
			return fmt.Errorf("record %d follows %d: the records between are missing", r.Seq, records[i-1].Seq)
		case i > 0 && r.Prev != records[i-1].Hash:
			return fmt.Errorf("record %d does not follow record %d as found here: one of them was replaced", r.Seq, records[i-1].Seq)
		}
	}
	return nil
}

// appendAudit adds an audit record for a change.
func (s *State) appendAudit(c command) {
	action, subject := s.describeChange(c)
	if action == "" {
		return
	}
	r := AuditRecord{
		Seq: 1, Index: s.Index, At: c.At, Actor: c.Actor, Action: action, Subject: subject, Reason: c.Reason, Detail: c.Detail,
	}
	if n := len(s.Audit); n > 0 {
		r.Seq, r.Prev = s.Audit[n-1].Seq+1, s.Audit[n-1].Hash
	}
	r.Hash = r.computeHash()
	keep := s.Audit[max(0, len(s.Audit)-maxAuditRecords+1):]
	s.Audit = append(append(make([]AuditRecord, 0, len(keep)+1), keep...), r)
}

// describeChange returns the action and the subject of an operator's command. Plans and automatic key rotations are
// no operator's decision and are not audited.
func (s *State) describeChange(c command) (action, subject string) {
	switch c.Kind {
	case kindStartRollout, kindEndRollout:
		return s.describeRolloutChange(c)
	case kindPutSpec:
		if c.EndsRollout != 0 || c.Rollout != nil {
			return s.describeRolloutChange(c)
		}
		return "apply", "spec " + strconv.FormatUint(s.SpecVersion, 10)
	case kindPutDrain:
		action, subject = "drain", c.Path
		if !c.Until.IsZero() {
			action = "drain until " + c.Until.Format(time.RFC3339)
		}
		if c.Drill != "" {
			subject += " for drill " + c.Drill
		}
		if c.OverrideRules {
			action += " (safety rules overridden)"
		}
		return action, subject
	case kindDeleteDrain:
		return "undrain", c.Path
	case kindRotateKey:
		if c.Actor != "" { // the leader rotates keys without an operator
			return "tickets rotate", ""
		}
	case kindPurgeKeys:
		return "tickets purge", ""
	case kindAuditNote:
		return c.Action, c.Path
	case kindStartSwitch:
		return "switch", s.Switch.describeSwitch()
	case kindStepSwitch:
		return "switch " + c.Action, s.Switch.describeSwitch()
	case kindStopLever:
		return c.Action, "drills and drains"
	case kindChangeSigning:
		if s.Signing == nil {
			return "dnssec " + c.Action, c.Path + " is not signed any more"
		}
		return "dnssec " + c.Action, c.Path + " is " + string(s.Signing.Phase)
	}
	return "", ""
}

// describeRemoval returns the audit's record of a member's removal; empty when the record has been dropped.
func (s *State) describeRemoval(id string) string {
	for _, r := range slices.Backward(s.Audit) {
		if subject, _, _ := strings.Cut(r.Subject, " "); r.Action == "member remove" && subject == id {
			text := fmt.Sprintf("removed by %s at %s", r.Actor, r.At.Format(time.RFC3339))
			if r.Reason != "" {
				text += ": " + r.Reason
			}
			return text
		}
	}
	return ""
}
