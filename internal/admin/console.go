package admin

import (
	"context"
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/console"
)

const (
	// liveInterval is how often the console reads answers that change all the time.
	liveInterval = time.Second
	// quietInterval is how often it reads answers that change by operators or plans only.
	quietInterval = 2 * time.Second
)

// newConsole returns the web console with the feeds of the calls that this tier supports.
func (s *Server) newConsole() *console.Console {
	b := &s.cfg.Backend
	plan, _, planHistory := b.planCalls()
	cfg := console.Config{
		Node: s.cfg.Node, Tier: s.cfg.Role, Actions: []string{},
		IdentifyCaller: func(r *http.Request) (console.Caller, bool) { return toViewer(s.identifyCaller(r)) },
	}
	if s.acceptsTokens() {
		cfg.CheckToken = func(token string) (console.Caller, bool) { return toViewer(s.identifyToken(token)) }
	}
	cfg.Feeds = addFeed(cfg.Feeds, "status", liveInterval, s.statusCall())
	cfg.Feeds = addFeed(cfg.Feeds, "queue", liveInterval, b.Queue)
	cfg.Feeds = addFeed(cfg.Feeds, "uplinks", liveInterval, b.Uplinks)
	cfg.Feeds = addFeed(cfg.Feeds, "tenants", liveInterval, b.Tenants)
	cfg.Feeds = addFeed(cfg.Feeds, "members", quietInterval, b.Members)
	cfg.Feeds = addFeed(cfg.Feeds, "audit", quietInterval, b.Audit)
	cfg.Feeds = addFeed(cfg.Feeds, "plan", quietInterval, readNumbered(plan))
	cfg.Feeds = addFeed(cfg.Feeds, "plans", quietInterval, readNumbered(planHistory))
	if b.Drain != nil && b.Undrain != nil {
		cfg.Actions = append(cfg.Actions, "drain")
	}
	if b.Explain != nil {
		cfg.Actions = append(cfg.Actions, "explain")
	}
	return console.New(cfg)
}

// toViewer converts a caller and its role.
func toViewer(name string, role Role) (console.Caller, bool) {
	return console.Caller{Name: name, Role: role.String()}, role >= RoleViewer
}

// addFeed adds a feed of a call. A nil call is one that this tier does not support.
func addFeed[A any](feeds []console.Feed, name string, interval time.Duration, call func(context.Context) (*A, error)) []console.Feed {
	if call == nil {
		return feeds
	}
	return append(feeds, console.Feed{Name: name, Interval: interval, Read: func(ctx context.Context) (any, error) { return call(ctx) }})
}

// readNumbered returns a call with its optional number omitted, or nil for nil.
func readNumbered[A any](call func(context.Context, []uint64) (*A, error)) func(context.Context) (*A, error) {
	if call == nil {
		return nil
	}
	return func(ctx context.Context) (*A, error) { return call(ctx, []uint64{0}) }
}
