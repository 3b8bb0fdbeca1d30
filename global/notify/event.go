package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"
)

// The types of events.
const (
	RegionUnreachable  = "region_unreachable"  // no gateway of the region is reachable
	RegionBack         = "region_back"         // it is reachable again
	DrainBegun         = "drain_begun"         // of a region, zone or worker
	DrainEnded         = "drain_ended"         // by an operator, or at its end
	RolloutEnded       = "rollout_ended"       // a staged spec was promoted or rolled back
	LimitUsedUp        = "limit_used_up"       // a tenant has used its tokens or money of the day
	CertificateExpires = "certificate_expires" // a certificate of a node expires within a week
	TestEvent          = "test"                // sent by spillway notify test
)

// EventTypes lists the types that a configuration may select.
func EventTypes() []string {
	return []string{RegionUnreachable, RegionBack, DrainBegun, DrainEnded, RolloutEnded, LimitUsedUp, CertificateExpires}
}

// Event is one notification.
type Event struct {
	ID      string    `json:"id"` // the same in all deliveries of the event
	Type    string    `json:"type"`
	At      time.Time `json:"at"`
	Node    string    `json:"node"`    // the global node that sends it
	Subject string    `json:"subject"` // what it is about: a region, a path, a tenant, a certificate
	Text    string    `json:"text"`
}

// newEvent returns an event whose id follows from what it is about. cause distinguishes it from others of the same type and subject.
func newEvent(kind, subject, cause, text string, now time.Time) Event {
	sum := sha256.Sum256([]byte(kind + "\x00" + subject + "\x00" + cause))
	return Event{ID: "evt_" + hex.EncodeToString(sum[:12]), Type: kind, At: now.UTC(), Subject: subject, Text: text}
}

// NewTestEvent returns the event of spillway notify test.
func NewTestEvent(node, actor string, now time.Time) Event {
	e := newEvent(TestEvent, node, strconv.FormatInt(now.UnixNano(), 10), fmt.Sprintf("test by %s", actor), now)
	e.Node = node
	return e
}

// SignBody returns the value of the signature's header for a body at a time.
func SignBody(secret, body []byte, at time.Time) string {
	t := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(t + "."))
	mac.Write(body)
	return "t=" + t + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}
