package admin

import (
	"context"
	"net/http"
	"time"
)

const pathAudit = "/v1/audit"

// AuditRecord is one change that an operator made. Each carries the hash of the one before it.
type AuditRecord struct {
	Seq     uint64    `json:"seq"`   // counts from 1 without gaps
	Index   uint64    `json:"index"` // Raft index of the change
	At      time.Time `json:"at"`
	Actor   string    `json:"actor"`
	Action  string    `json:"action"`
	Subject string    `json:"subject,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Detail  string    `json:"detail,omitempty"` // what differs
	Prev    string    `json:"prev"`
	Hash    string    `json:"hash"`
}

// AuditAnswer holds the newest records, oldest first.
type AuditAnswer struct {
	Node    string        `json:"node"`
	File    string        `json:"file,omitempty"` // the node's own copy of all records that it has seen
	Records []AuditRecord `json:"records"`
}

// Audit asks for the newest changes.
func (c *Client) Audit(ctx context.Context) (*AuditAnswer, error) {
	return call[AuditAnswer](ctx, c, http.MethodGet, pathAudit, nil)
}
