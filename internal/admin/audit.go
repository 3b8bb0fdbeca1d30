package admin

import (
	"context"
	"net/http"
	"time"
)

const pathAudit = "/v1/audit"

// AuditRecord is one change by an operator. Each contains the hash of the record before it.
type AuditRecord struct {
	Seq     uint64    `json:"seq"`   // counts from 1 without gaps
	Index   uint64    `json:"index"` // Raft index of the change
	At      time.Time `json:"at"`
	Actor   string    `json:"actor"`
	Action  string    `json:"action"`
	Subject string    `json:"subject,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Detail  string    `json:"detail,omitempty"` // the differences
	Prev    string    `json:"prev"`
	Hash    string    `json:"hash"`
}

// AuditAnswer holds the newest records, oldest first.
type AuditAnswer struct {
	Node    string        `json:"node"`
	File    string        `json:"file,omitempty"` // the node's file with all records that it has received
	Records []AuditRecord `json:"records"`
}

// ListAudit returns the newest changes.
func (c *Client) ListAudit(ctx context.Context) (*AuditAnswer, error) {
	return callNode[AuditAnswer](ctx, c, http.MethodGet, pathAudit, nil)
}
