package main

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
)

// resolveTarget completes the connection flags from the context and the environment; see newContextCommand for the order.
func (t *adminTarget) resolveTarget() error {
	if t.resolved {
		return nil
	}
	t.resolved = true
	name := t.contextName
	if name == "" && t.servers == "" && os.Getenv("SPILLWAY_SERVER") == "" {
		name = os.Getenv("SPILLWAY_CONTEXT")
		if name == "" {
			f, err := readContexts()
			if err != nil {
				return err
			}
			name = f.Current
		}
	}
	if name != "" {
		f, err := readContexts()
		if err != nil {
			return err
		}
		c, err := f.findContext(name)
		if err != nil {
			return err
		}
		t.origin = " of context " + name
		if t.servers == "" {
			t.servers = strings.Join(c.Servers, ",")
		}
		if t.certFile == "" && t.keyFile == "" && t.tokenFile == "" {
			t.certFile, t.keyFile, t.tokenFile = c.Cert, c.Key, c.TokenFile
		}
		if t.caFile == "" {
			t.caFile = c.CA
		}
		return nil
	}
	for value, env := range map[*string]string{
		&t.servers: "SPILLWAY_SERVER", &t.certFile: "SPILLWAY_CERT", &t.keyFile: "SPILLWAY_KEY", &t.caFile: "SPILLWAY_CA", &t.tokenFile: "SPILLWAY_TOKEN_FILE",
	} {
		if *value == "" {
			*value = os.Getenv(env)
		}
	}
	return nil
}

// readTokenFile reads a bearer token. A JSON Web Token that has expired is an error.
func readTokenFile(path string, now time.Time) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", loginError(fmt.Errorf("%s contains no token", path))
	}
	if end := tokenExpiry(token); !end.IsZero() && !now.Before(end) {
		return "", loginError(fmt.Errorf("the token in %s expired at %s: log in again, or write a new token to the file", path, end.UTC().Format(time.RFC3339)))
	}
	return token, nil
}

// tokenExpiry returns the claim exp of a JSON Web Token; zero for other tokens and without the claim. The signature is not
// checked: the node does that.
func tokenExpiry(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Exp float64 `json:"exp"`
	}
	if json.Unmarshal(payload, &claims) != nil || claims.Exp <= 0 || claims.Exp > 1e11 {
		return time.Time{}
	}
	return time.Unix(int64(claims.Exp), 0)
}

// explainCertificateError adds to an error of an operator's certificate what to do about it.
func explainCertificateError(path string, err error) error {
	if e := (x509.CertificateInvalidError{}); errors.As(err, &e) && e.Reason == x509.Expired {
		end := ""
		if e.Cert != nil {
			end = " at " + e.Cert.NotAfter.UTC().Format(time.RFC3339)
		}
		return loginError(fmt.Errorf("the certificate %s has expired%s: issue a new one for the operator", path, end))
	}
	return err
}

// loginError marks an error of a login: the command exits with exitDenied.
func loginError(err error) error { return &exitCodeError{err, exitDenied} }

// explainRefusal adds to a refusal which node refused, and whether its release differs from this command's.
func (t *adminTarget) explainRefusal(err error) error {
	e := (*admin.Error)(nil)
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case e.Status == http.StatusNotImplemented:
		return &exitCodeError{fmt.Errorf("%s does not support this command: %s", describeServer(e), describeNeededTier(t.commandName(), e.ServerRole)), exitWrongServer}
	case e.Status == http.StatusNotFound && strings.HasPrefix(e.Message, "unknown call "):
		return &exitCodeError{fmt.Errorf("%s does not know this call%s", describeServer(e), compareReleases(e.ServerVersion)), exitWrongServer}
	case e.Status == http.StatusBadRequest && strings.Contains(e.Message, "unknown field"):
		return &exitCodeError{fmt.Errorf("%s does not know an option of this command%s\nhint: %s", describeServer(e), compareReleases(e.ServerVersion), e.Message), exitWrongServer}
	case e.Status == http.StatusUnauthorized && t.tokenFile != "":
		return loginError(fmt.Errorf("%s does not accept the token in %s: it may have been revoked; log in again, or ask for a new token", describeServer(e), t.tokenFile))
	case e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden:
		return loginError(err)
	}
	return err
}

// commandName returns the name of the running command without the program's: "get members".
func (t *adminTarget) commandName() string {
	if t.cmd == nil {
		return ""
	}
	return strings.TrimPrefix(t.cmd.CommandPath(), "spillway ")
}

// tierNames are the names of the nodes of each tier.
var tierNames = map[string]string{"global": "a global node", "regional": "a gateway", "local": "a local instance"}

func describeServer(e *admin.Error) string {
	tier := tierNames[e.ServerRole]
	if tier == "" {
		return "the node"
	}
	return e.ServerNode + " is " + tier + ": it"
}

// describeNeededTier returns which nodes support a command that a node of a tier does not.
func describeNeededTier(command, role string) string {
	switch {
	case command == "get queue" || command == "get autoscaling":
		return "name a local instance with --server or --context"
	case role == "local":
		return "name a global node with --server or --context; a standalone zone or gateway has no such state"
	}
	return "name a global node with --server or --context"
}

// compareReleases describes how a node's release differs from this command's; "" if it does not or is unknown.
func compareReleases(of string) string {
	switch {
	case of == "":
		return ": it is of an earlier release than this command (" + version + "); use the command of the node's release, or upgrade the node"
	case of != version:
		return ": its release is " + of + " and this command's is " + version + "; use the command of the node's release, or upgrade the older one"
	}
	return ""
}
