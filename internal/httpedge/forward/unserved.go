package forward

import (
	"net/http"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/paths"
)

// RefuseUnserved returns the error for a Buffered request that is not served, equal in all tiers: 404 for an
// unknown path, 426 for a GET of a WebSocket path, 405 for a wrong method. It sets the headers that belong to
// the response.
func RefuseUnserved(h http.Header, r *http.Request, extra []string) *openai.Error {
	e := &openai.Error{Status: http.StatusMethodNotAllowed, Type: openai.TypeInvalidRequest, Code: openai.CodeMethodNotAllowed, NoRetry: true}
	_, lists := openai.IsModelsPath(r.URL.Path)
	_, posts := paths.MatchPath(paths.HTTP, r.URL, extra)
	_, upgrades := paths.MatchPath(paths.WebSocket, r.URL, extra)
	allow := ""
	switch {
	case lists:
		allow = http.MethodGet + ", " + http.MethodHead
	case posts:
		allow = http.MethodPost
	case upgrades && r.Method == http.MethodGet:
		e.Status, e.Message = http.StatusUpgradeRequired, "ask for a WebSocket over HTTP/1.1 here (Connection: Upgrade, Upgrade: websocket)"
		if r.ProtoMajor == 1 { // HTTP/2 and later have no Upgrade
			h["Connection"], h["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
		}
		return e
	case upgrades:
		allow = http.MethodGet
	default:
		return paths.NotFoundError(r.URL.Path)
	}
	h["Allow"] = []string{allow}
	e.Message = "use " + allow + " here"
	return e
}
