package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/identity"
)

// probeTimeout is how long a node may take to answer a probe before the next node is tried.
const probeTimeout = 2 * time.Second

// callTimeout bounds one call to a node's admin API.
const callTimeout = 10 * time.Second

// adminTarget is the node that an operator's command is sent to, from the connection flags.
type adminTarget struct {
	servers                   string // comma-separated addresses
	certFile, keyFile, caFile string
	tokenFile                 string

	cmd          *cobra.Command
	contextName  string                       // --context
	resolved     bool                         // the context and the environment are applied
	origin       string                       // " of context NAME" if the servers are a context's
	asked        string                       // server that printAskedNode named last
	runningNodes map[string]admin.RunningNode // nodes on this machine, by server address
}

func (t *adminTarget) addFlags(cmd *cobra.Command) {
	t.cmd = cmd
	f := cmd.Flags()
	f.StringVar(&t.servers, "server", "", "admin addresses to try in order, comma-separated: unix:///path/to.sock or https://host:port\n(default: the context, then $SPILLWAY_SERVER, then this user's nodes on this machine, or for root the services of systemd: global nodes, else gateways, else local instances)")
	f.StringVar(&t.contextName, "context", "", "context to use, of those that `spillway context list` shows (default $SPILLWAY_CONTEXT, then the current one)")
	panicOnError(cmd.RegisterFlagCompletionFunc("context", completeContextNames))
	f.StringVar(&t.certFile, "cert", "", "operator certificate for https servers (PEM; default $SPILLWAY_CERT)")
	f.StringVar(&t.keyFile, "key", "", "private key of --cert (PEM; default $SPILLWAY_KEY)")
	f.StringVar(&t.tokenFile, "token-file", "", "file with a bearer token for https servers, instead of a certificate (default $SPILLWAY_TOKEN_FILE)")
	f.StringVar(&t.caFile, "ca", "", "CA of the nodes' certificates (PEM; default $SPILLWAY_CA)")
}

// callNode runs f with the first server that answers a probe. A read without an answer is repeated at the next server. A
// write is sent once; if its answer does not arrive, the outcome is reported as unknown.
func (t *adminTarget) callNode(ctx context.Context, f func(context.Context, *admin.Client) error) error {
	if err := t.resolveTarget(); err != nil {
		return err
	}
	servers, err := t.listServers(ctx)
	if err != nil {
		return err
	}
	if len(servers) == 0 {
		return &exitCodeError{errors.New("no node found: this user runs no Spillway node on this machine\nhint: start one with `spillway demo`, or name one with --server or SPILLWAY_SERVER; root also finds the services of systemd"), exitUnreachable}
	}
	certs, err := t.loadCerts()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var failures []string
	for _, s := range servers {
		if err := checkReachable(ctx, s); err != nil {
			failures = append(failures, err.Error())
			continue
		}
		c, err := t.dialNode(s, certs)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.CheckAlive(ctx, probeTimeout); err != nil && ctx.Err() == nil {
			failures = append(failures, err.Error())
			continue
		}
		t.printAskedNode(s)
		err = f(ctx, c)
		noAnswer, reported := (*admin.NoAnswerError)(nil), (*admin.Error)(nil)
		if errors.As(err, &noAnswer) && noAnswer.MayHaveChanged || errors.As(err, &reported) && reported.Unknown {
			return &unknownOutcomeError{err: err, checkCommand: t.suggestCheckCommand()}
		}
		if noAnswer == nil {
			return t.explainRefusal(err)
		}
		failures = append(failures, err.Error())
	}
	return &exitCodeError{fmt.Errorf("cannot connect to any node%s:\n  %s\nhint: is a node running? `spillway demo` starts a demo fleet", t.origin, strings.Join(failures, "\n  ")), exitUnreachable}
}

// unknownOutcomeError reports a change that was sent and may or may not have been made.
type unknownOutcomeError struct {
	err          error
	checkCommand string
}

// Error includes the command that shows whether the change was made.
func (e *unknownOutcomeError) Error() string {
	return fmt.Sprintf("outcome unknown: %v: the change may or may not be in force; check with `%s`", e.err, e.checkCommand)
}

// Unwrap returns why there is no answer.
func (e *unknownOutcomeError) Unwrap() error { return e.err }

// suggestCheckCommand returns the command that shows whether a change by the running command is in force. The audit log lists
// every committed change.
func (t *adminTarget) suggestCheckCommand() string {
	name := ""
	if t.cmd != nil {
		name = strings.TrimPrefix(t.cmd.CommandPath(), "spillway ")
	}
	verb, _, _ := strings.Cut(name, " ")
	switch verb {
	case "drain", "undrain":
		return "spillway get drains --linearizable"
	case "switch":
		return "spillway switch status"
	case "apply":
		return "spillway get spec --linearizable"
	case "promote", "rollback":
		return "spillway get stage"
	case "members":
		return "spillway members"
	}
	return "spillway audit"
}

// dialNode connects to a server. For https servers it uses the token if one is given, otherwise the certificate.
func (t *adminTarget) dialNode(server string, certs *identity.Certs) (*admin.Client, error) {
	if t.tokenFile == "" || !strings.HasPrefix(server, "https://") {
		return admin.Dial(server, certs)
	}
	token, err := readTokenFile(t.tokenFile, time.Now())
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(t.caFile)
	if err != nil {
		return nil, fmt.Errorf("reading the CA (--token-file also needs --ca): %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s contains no PEM certificate", t.caFile)
	}
	return admin.DialToken(server, roots, token)
}

// checkReachable opens a connection to a server and closes it without sending anything.
func checkReachable(ctx context.Context, server string) error {
	u, err := url.Parse(server)
	if err != nil {
		return fmt.Errorf("server %q is not an address: write https://host:port or unix:///path/to/admin.sock", server)
	}
	network, addr := "tcp", u.Host
	if u.Scheme == "unix" {
		network, addr = "unix", u.Path
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return fmt.Errorf("%s: %w", server, err)
	}
	return c.Close()
}

// loadCerts loads the operator's certificate, nil if none is given. Unix sockets need none.
func (t *adminTarget) loadCerts() (*identity.Certs, error) {
	if t.certFile == "" && t.keyFile == "" && (t.caFile == "" || t.tokenFile != "") {
		return nil, nil
	}
	certs, err := identity.LoadCerts(identity.CertFiles{Cert: t.certFile, Key: t.keyFile, CA: t.caFile}, nil)
	return certs, explainCertificateError(t.certFile, err)
}

// listServers returns the servers of --server. Without it, it returns those of the fleet that runs on this machine: its global
// nodes, without any its gateways, without any its local instances.
func (t *adminTarget) listServers(ctx context.Context) ([]string, error) {
	if t.servers != "" {
		return strings.Split(t.servers, ","), nil
	}
	nodes, err := admin.ListRunning(ctx)
	if err != nil {
		return nil, err
	}
	t.runningNodes = map[string]admin.RunningNode{}
	var fleets, servers []string
	for _, n := range nodes {
		if !slices.Contains(fleets, n.Fleet) {
			fleets = append(fleets, n.Fleet)
		}
	}
	if len(fleets) > 1 {
		return nil, newSeveralFleetsError(nodes, fleets)
	}
	for _, role := range []string{"global", "regional", "local"} {
		for _, n := range nodes {
			if n.Role == role {
				servers = append(servers, n.ServerAddr())
				t.runningNodes[n.ServerAddr()] = n
			}
		}
		if len(servers) > 0 {
			break
		}
	}
	return servers, nil
}

// maxListedNodes is how many nodes of each fleet an error lists.
const maxListedNodes = 3

// newSeveralFleetsError reports that the fleet must be named, with some nodes of each.
func newSeveralFleetsError(nodes []admin.RunningNode, fleets []string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "nodes of %d separate fleets run on this machine: name one with --server or SPILLWAY_SERVER", len(fleets))
	for _, f := range fleets {
		fmt.Fprintf(&b, "\n  fleet %s:", f)
		listed, more := 0, 0
		for _, role := range []string{"global", "regional", "local"} {
			for _, n := range nodes {
				switch {
				case n.Fleet != f || n.Role != role:
				case listed >= maxListedNodes:
					more++
				default:
					listed++
					fmt.Fprintf(&b, "\n    --server %s   (%s %s)", n.ServerAddr(), n.Role, n.Node)
				}
			}
		}
		if more > 0 {
			fmt.Fprintf(&b, "\n    and %d more nodes", more)
		}
	}
	return errors.New(b.String())
}

// printAskedNode prints the address of the node that was chosen automatically.
func (t *adminTarget) printAskedNode(server string) {
	if n, ok := t.runningNodes[server]; ok && server != t.asked {
		t.asked = server
		fmt.Fprintf(t.cmd.ErrOrStderr(), "asking %s node %s at %s\n", n.Role, n.Node, server)
	}
}
