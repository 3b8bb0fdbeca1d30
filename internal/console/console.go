package console

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// Path is where the console is found.
const Path = "/console/"

// Feed is one answer of the admin API that the page shows live.
type Feed struct {
	// Name is the name of the feed in streams.
	Name string
	// Interval is the shortest time between two readings. Large answers are read less often.
	Interval time.Duration
	// Read returns the answer, which is encoded as JSON.
	Read func(context.Context) (any, error)
}

// Caller is an authenticated viewer.
type Caller struct {
	Name string `json:"name"`
	Role string `json:"role"` // "viewer", "operator" or "admin"
}

// Config of a Console.
type Config struct {
	// Node and Tier are shown in the page's head.
	Node, Tier string
	// Feeds are the live answers.
	Feeds []Feed
	// Actions are the calls that the node supports: "drain", "undrain", "explain".
	Actions []string
	// IdentifyCaller authenticates a request. ok is false without a valid certificate, token or cookie.
	IdentifyCaller func(*http.Request) (c Caller, ok bool)
	// CheckToken returns the caller of a token. Nil: the node accepts no tokens.
	CheckToken func(token string) (c Caller, ok bool)
}

// Console serves the pages and streams of one node.
type Console struct {
	cfg    Config
	login  *Login
	assets map[string]asset
	hub    *streamHub
}

// New returns a Console. It starts nothing: feeds are read while there are viewers.
func New(cfg Config) *Console {
	return &Console{cfg: cfg, login: &Login{CookieName: SecureCookieName, Secure: true, CheckToken: cfg.CheckToken}, assets: loadAssets(), hub: newStreamHub(cfg.Feeds)}
}

// AddRoutes adds the console's paths.
func (c *Console) AddRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, Path, http.StatusFound) })
	mux.HandleFunc("GET "+Path, c.serveAsset)
	mux.HandleFunc("GET "+Path+"session", c.serveSession)
	mux.HandleFunc("GET "+Path+"stream", c.serveStream)
	c.login.AddRoutes(mux)
}

// Close ends all streams. New ones are refused.
func (c *Console) Close() { c.hub.close() }

// sessionAnswer describes the caller and the node.
type sessionAnswer struct {
	Caller
	Node    string   `json:"node"`
	Tier    string   `json:"tier"`
	Feeds   []string `json:"feeds"`
	Actions []string `json:"actions"`
}

func (c *Console) serveSession(w http.ResponseWriter, r *http.Request) {
	caller, ok := c.cfg.IdentifyCaller(r)
	if !ok {
		writeLoginRequired(w, c.cfg.CheckToken != nil)
		return
	}
	out := sessionAnswer{Caller: caller, Node: c.cfg.Node, Tier: c.cfg.Tier, Feeds: []string{}, Actions: c.cfg.Actions}
	for i := range c.cfg.Feeds {
		out.Feeds = append(out.Feeds, c.cfg.Feeds[i].Name)
	}
	writeJSON(w, http.StatusOK, out)
}

// refusal is the JSON form of an error, the same as in the admin API.
type refusal struct {
	Error refusalText `json:"error"`
}

type refusalText struct {
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func writeLoginRequired(w http.ResponseWriter, tokens bool) {
	hint := "log in with a token that admin.grants lists"
	if !tokens {
		hint = "this node accepts no tokens: add one to admin.grants, or run `spillway console` on the node's machine"
	}
	writeRefusal(w, http.StatusUnauthorized, "authentication required", hint)
}

func writeRefusal(w http.ResponseWriter, status int, message, hint string) {
	writeJSON(w, status, refusal{refusalText{message, hint}})
}

func writeJSON(w http.ResponseWriter, status int, out any) {
	setSafeHeaders(w.Header())
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(out) // an error means that the client disconnected
}
