package accesslog

import (
	"context"
	"hash/fnv"
	"log/slog"
	"net/http"
	"net/netip"
	"time"
)

// Record is one request at the edge. Zero fields are left out of its line.
type Record struct {
	Arrived              time.Time
	RequestID            string
	Client               netip.Addr
	Method, Path         string // Path is without the query, which may hold a ticket
	Tenant, Model, Class string
	Status               int    // 499: the client disconnected
	Code                 string // of the error, if Spillway sent one
	Broken               bool   // the response broke off after its first byte
	Route                string // region/zone/worker, or how much of it is known
	Reason               string // why this route was chosen
	Retried              string // why the first attempt failed
	Spilled              bool   // another region served it
	PromptTokens         int
	CachedTokens         int
	CompletionTokens     int
	Estimated            bool          // the engine reported no token counts
	BytesIn, BytesOut    int64         // of requests that are not parsed
	FirstByte            time.Duration // after arrival; 0: there was none
	Duration             time.Duration
}

// IsFailure reports whether the request failed for a reason on our side: such records are always written.
func (r *Record) IsFailure() bool { return r.Status >= http.StatusInternalServerError || r.Broken }

// isSampled reports whether a request with this id belongs to the written share.
func isSampled(id string, share float64) bool {
	if share >= 1 {
		return true
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // never fails
	return float64(h.Sum32()) < share*(1<<32)
}

// writeTo writes the record's line with a handler.
func (r *Record) writeTo(h slog.Handler) error {
	line := slog.NewRecord(r.Arrived.UTC(), slog.LevelInfo, "request", 0)
	add := func(key, value string) {
		if value != "" {
			line.AddAttrs(slog.String(key, value))
		}
	}
	count := func(key string, n int64) {
		if n > 0 {
			line.AddAttrs(slog.Int64(key, n))
		}
	}
	add("request", r.RequestID)
	if r.Client.IsValid() {
		add("client", r.Client.String())
	}
	add("method", r.Method)
	add("path", r.Path)
	line.AddAttrs(slog.Int("status", r.Status))
	add("code", r.Code)
	if r.Broken {
		line.AddAttrs(slog.Bool("broken", true))
	}
	add("tenant", r.Tenant)
	add("model", r.Model)
	add("class", r.Class)
	add("route", r.Route)
	add("reason", r.Reason)
	if r.Spilled {
		line.AddAttrs(slog.Bool("spilled", true))
	}
	add("retried", r.Retried)
	count("prompt_tokens", int64(r.PromptTokens))
	count("cached_tokens", int64(r.CachedTokens))
	count("completion_tokens", int64(r.CompletionTokens))
	if r.Estimated {
		line.AddAttrs(slog.Bool("estimated", true))
	}
	count("bytes_in", r.BytesIn)
	count("bytes_out", r.BytesOut)
	if r.FirstByte > 0 {
		line.AddAttrs(slog.Float64("ttft_seconds", seconds(r.FirstByte)))
	}
	line.AddAttrs(slog.Float64("seconds", seconds(r.Duration)))
	return h.Handle(context.Background(), line)
}

// seconds returns a duration in seconds, rounded to microseconds.
func seconds(d time.Duration) float64 { return d.Round(time.Microsecond).Seconds() }
