package console

import (
	"encoding/base64"
	"encoding/json"
	"mime"
	"net/http"
)

const (
	// SecureCookieName is the cookie of a login over TLS. Browsers accept the prefix only with Secure, path / and no domain.
	SecureCookieName = "__Host-spillway"
	// WriteHeader is a header that a change by a cookie's holder needs. A page of another site cannot send it without the
	// node's consent (CORS), which is never given.
	WriteHeader = "Spillway-Console"
)

// Login exchanges a token for a cookie that holds it. Scripts cannot read the cookie, and browsers do not send it with
// requests from pages of other sites.
type Login struct {
	CookieName string
	Secure     bool // the cookie is sent over TLS only
	// CheckToken returns the caller of a token. Nil: no token is accepted.
	CheckToken func(token string) (Caller, bool)
}

// AddRoutes adds the paths to log in and out.
func (l *Login) AddRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST "+Path+"login", l.serveLogin)
	mux.HandleFunc("POST "+Path+"logout", l.serveLogout)
}

func (l *Login) serveLogin(w http.ResponseWriter, r *http.Request) {
	if !isOwnPage(r) {
		writeRefusal(w, http.StatusForbidden, "cross-site requests are refused", "log in on the console's own page")
		return
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		writeRefusal(w, http.StatusUnsupportedMediaType, "the Content-Type of the body is not JSON", "")
		return
	}
	var body struct {
		Token string `json:"token"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxLoginBytes)).Decode(&body); err != nil {
		writeRefusal(w, http.StatusBadRequest, "invalid body", "")
		return
	}
	if l.CheckToken == nil {
		writeLoginRequired(w, false)
		return
	}
	caller, ok := l.CheckToken(body.Token)
	if !ok {
		writeRefusal(w, http.StatusUnauthorized, "the token is not valid", "a token is listed by its hash in admin.grants")
		return
	}
	http.SetCookie(w, l.newCookie(base64.RawURLEncoding.EncodeToString([]byte(body.Token)), int(cookieAge.Seconds())))
	writeJSON(w, http.StatusOK, caller)
}

func (l *Login) serveLogout(w http.ResponseWriter, r *http.Request) {
	if !isOwnPage(r) {
		writeRefusal(w, http.StatusForbidden, "cross-site requests are refused", "log out on the console's own page")
		return
	}
	http.SetCookie(w, l.newCookie("", -1))
	writeJSON(w, http.StatusOK, struct{}{})
}

func (l *Login) newCookie(value string, maxAge int) *http.Cookie {
	return &http.Cookie{Name: l.CookieName, Value: value, Path: "/", MaxAge: maxAge, Secure: l.Secure, HttpOnly: true, SameSite: http.SameSiteStrictMode}
}

// TokenOf returns the token in the cookie of a Login, or "". A request that may change something needs WriteHeader too.
func TokenOf(r *http.Request, cookieName string) string {
	if r.Method != http.MethodGet && r.Method != http.MethodHead && !isOwnPage(r) {
		return ""
	}
	c, err := r.Cookie(cookieName)
	if err != nil {
		return ""
	}
	token, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil {
		return ""
	}
	return string(token)
}

// isOwnPage reports whether the request has the header that only the console's own page sends.
func isOwnPage(r *http.Request) bool { return r.Header.Get(WriteHeader) != "" }
