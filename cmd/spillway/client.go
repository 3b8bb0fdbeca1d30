package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// aliveTimeout is how long a node may take to answer a probe before the next one is asked.
const aliveTimeout = 2 * time.Second

// callTimeout bounds one call to a node's admin interface.
const callTimeout = 10 * time.Second

// target is where an operator's command goes.
type target struct {
	servers          string
	cert, key, roots string
	token            string // its file

	cmd   *cobra.Command
	found map[string]admin.Running // nodes on this machine, by server
}

func (t *target) flags(cmd *cobra.Command) {
	t.cmd = cmd
	f := cmd.Flags()
	f.StringVar(&t.servers, "server", os.Getenv("SPILLWAY_SERVER"), "admin addresses to try in turn, comma-separated: unix:///path/to.sock or https://host:port\n(default $SPILLWAY_SERVER, then the nodes of this user on this machine: global nodes, else gateways, else zones)")
	f.StringVar(&t.cert, "cert", os.Getenv("SPILLWAY_CERT"), "operator certificate for https servers (PEM; default $SPILLWAY_CERT)")
	f.StringVar(&t.key, "key", os.Getenv("SPILLWAY_KEY"), "its key (PEM; default $SPILLWAY_KEY)")
	f.StringVar(&t.token, "token-file", os.Getenv("SPILLWAY_TOKEN_FILE"), "file of a bearer token for https servers, instead of a certificate (default $SPILLWAY_TOKEN_FILE)")
	f.StringVar(&t.roots, "ca", os.Getenv("SPILLWAY_CA"), "the CA that signed the nodes' certificates (PEM; default $SPILLWAY_CA)")
}

// call runs f against the first server that answers a probe. A read goes on to the next server when one does not answer; a
// write is sent once, and an answer that does not come is reported as an unknown outcome.
func (t *target) call(ctx context.Context, f func(context.Context, *admin.Client) error) error {
	servers, err := t.list(ctx)
	if err != nil {
		return err
	}
	if len(servers) == 0 {
		return errors.New("no node to ask: nothing is running here\nhint: start one with `spillway demo`, or name one with --server or SPILLWAY_SERVER")
	}
	certs, err := t.certs()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var silent []string
	for _, s := range servers {
		if err := reach(ctx, s); err != nil {
			silent = append(silent, err.Error())
			continue
		}
		c, err := t.dial(s, certs)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.Alive(ctx, aliveTimeout); err != nil && ctx.Err() == nil {
			silent = append(silent, err.Error())
			continue
		}
		t.announce(s)
		err = f(ctx, c)
		no := (*admin.NoAnswer)(nil)
		if !errors.As(err, &no) {
			return err
		}
		if no.Write {
			return fmt.Errorf("%w\nhint: whether the change was made is unknown: look at the state before you try again", err)
		}
		silent = append(silent, err.Error())
	}
	return fmt.Errorf("no node takes connections:\n  %s\nhint: is one running? `spillway demo` starts a planet", strings.Join(silent, "\n  "))
}

// dial uses the token for https servers where one is given.
func (t *target) dial(server string, certs *identity.Certs) (*admin.Client, error) {
	if t.token == "" || !strings.HasPrefix(server, "https://") {
		return admin.Dial(server, certs)
	}
	token, err := os.ReadFile(t.token)
	if err != nil {
		return nil, fmt.Errorf("reading the token: %w", err)
	}
	pem, err := os.ReadFile(t.roots)
	if err != nil {
		return nil, fmt.Errorf("reading the CA, which --token-file needs too (--ca): %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM form", t.roots)
	}
	return admin.DialToken(server, roots, strings.TrimSpace(string(token)))
}

// reach tries a connection to a server without saying anything on it.
func reach(ctx context.Context, server string) error {
	u, err := url.Parse(server)
	if err != nil {
		return fmt.Errorf("server %q: %w", server, err)
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

// certs loads the operator's certificate where one is given; unix sockets need none.
func (t *target) certs() (*identity.Certs, error) {
	if t.cert == "" && t.key == "" && (t.roots == "" || t.token != "") {
		return nil, nil
	}
	return identity.Load(identity.Files{Cert: t.cert, Key: t.key, CA: t.roots}, nil)
}

// list is the servers named, or else those of the one fleet that runs on this machine: its global nodes, or its gateways
// where there are none, or its local instances.
func (t *target) list(ctx context.Context) ([]string, error) {
	if t.servers != "" {
		return strings.Split(t.servers, ","), nil
	}
	nodes, err := admin.ListRunning(ctx)
	if err != nil {
		return nil, err
	}
	t.found = map[string]admin.Running{}
	var fleets, servers []string
	for _, n := range nodes {
		if !slices.Contains(fleets, n.Fleet) {
			fleets = append(fleets, n.Fleet)
		}
	}
	if len(fleets) > 1 {
		return nil, severalFleets(nodes, fleets)
	}
	for _, role := range []string{"global", "regional", "local"} {
		for _, n := range nodes {
			if n.Role == role {
				servers = append(servers, n.Server())
				t.found[n.Server()] = n
			}
		}
		if len(servers) > 0 {
			break
		}
	}
	return servers, nil
}

// maxCandidates is how many nodes of each fleet an error lists.
const maxCandidates = 3

// severalFleets refuses to guess which of several installations is meant.
func severalFleets(nodes []admin.Running, fleets []string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "nodes of %d separate fleets run on this machine: name one with --server or SPILLWAY_SERVER", len(fleets))
	for _, f := range fleets {
		fmt.Fprintf(&b, "\n  fleet %s:", f)
		listed, more := 0, 0
		for _, role := range []string{"global", "regional", "local"} {
			for _, n := range nodes {
				switch {
				case n.Fleet != f || n.Role != role:
				case listed >= maxCandidates:
					more++
				default:
					listed++
					fmt.Fprintf(&b, "\n    --server %s   (%s %s)", n.Server(), n.Role, n.Node)
				}
			}
		}
		if more > 0 {
			fmt.Fprintf(&b, "\n    and %d more nodes", more)
		}
	}
	return errors.New(b.String())
}

// announce prints which node is asked where the user named none.
func (t *target) announce(server string) {
	if n, ok := t.found[server]; ok {
		fmt.Fprintf(t.cmd.ErrOrStderr(), "asking %s node %s at %s\n", n.Role, n.Node, server)
	}
}

// outputFlag adds -o.
func outputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", "table", "table or json")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if *output != "table" && *output != "json" {
			return fmt.Errorf("unknown output %q: write -o table or -o json", *output)
		}
		return nil
	}
}

// printJSON writes v as the admin interface sent it.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
