package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/global"
	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/garbage"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/regional"
)

func globalCommand() *cobra.Command {
	return roleCommand(config.RoleGlobal, "Run a global node: DNS, redirects, steering, Raft")
}

func regionalCommand() *cobra.Command {
	return roleCommand(config.RoleRegional, "Run a gateway: the front door of a region")
}

func localCommand() *cobra.Command {
	return roleCommand(config.RoleLocal, "Run a local instance: the GPU workers of a zone")
}

func workerCommand() *cobra.Command {
	return roleCommand(config.RoleWorker, "Run a stand-in GPU worker that looks like vLLM and computes nothing")
}

// roleCommand runs one node from its config file until it is asked to stop.
func roleCommand(role, short string) *cobra.Command {
	var file, level string
	cmd := &cobra.Command{
		Use:     role + " -c FILE",
		Short:   short,
		Long:    short + ".\n\n`spillway config init " + role + "` writes a commented FILE, `spillway config describe " + role + "` explains every key.\nSIGHUP reads certificates, geo databases and lists of workers again, and reports changed keys of FILE that need a restart; SIGTERM or Ctrl-C stops in order.",
		Example: "  spillway config init " + role + " > " + role + ".yaml\n  spillway " + role + " -c " + role + ".yaml",
		GroupID: "run",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLog(cmd, level)
			if err != nil {
				return err
			}
			if err := expectRole(file, role); err != nil {
				return err
			}
			growDescriptors(descriptors)
			if role != config.RoleWorker { // nobody's traffic passes through a stand-in
				go keepCalm(cmd.Context())
				go garbage.Keep(cmd.Context())
			}
			return serve(cmd.Context(), file, log)
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "the node's config file")
	cmd.Flags().StringVar(&level, "log-level", "info", "debug, info, warn or error")
	must(cmd.MarkFlagRequired("config"))
	return cmd
}

func newLog(cmd *cobra.Command, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("unknown --log-level %q: write debug, info, warn or error", level)
	}
	return slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: l})), nil
}

// expectRole catches a file given to the wrong verb before it says something confusing about every key.
func expectRole(file, role string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the config: %w", err)
	}
	if got := config.RoleOf(text); got != role && slices.Contains(config.Roles(), got) {
		return fmt.Errorf("%s is the config of role %s: run `spillway %s -c %s`", file, got, got, file)
	}
	return nil
}

// stopTimeout bounds an orderly stop of a node that has no drain_timeout.
const stopTimeout = 30 * time.Second

// stopWithin is how long a node may take to stop, by its config as it is now.
func stopWithin(file string) time.Duration {
	cfg, err := config.LoadFile(file)
	if err != nil {
		return stopTimeout
	}
	switch c := cfg.(type) {
	case *config.Regional:
		return c.DrainTimeout
	case *config.Local:
		return c.DrainTimeout
	}
	return stopTimeout
}

// descriptors is how many a node has room for from the start; a table of that size takes 80 KB.
const descriptors = 8192

func serve(ctx context.Context, file string, log *slog.Logger) error {
	running, err := config.LoadFile(file)
	if err != nil {
		return err
	}
	node, err := openRole(file, log)
	if err != nil {
		return err
	}
	// Nodes are stopped in order and not cut, so their context outlives the signal.
	if err := node.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	log.Info("serving", append([]any{"config", file, "version", version}, listening(node)...)...)
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	notifySupervisor(log, daemon.SdNotifyReady) // after Notify: a SIGHUP that follows must not end the process
	for {
		select {
		case <-reload:
			notifySupervisor(log, daemon.SdNotifyReloading)
			reloadNode(node, file, running, log)
			notifySupervisor(log, daemon.SdNotifyReady)
		case <-ctx.Done():
			log.Info("stopping")
			notifySupervisor(log, daemon.SdNotifyStopping)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin(file))
			defer cancel()
			return node.Stop(ctx)
		}
	}
}

// notifySupervisor reports a change of state to the service manager that set NOTIFY_SOCKET (sd_notify(3)). Without one it
// does nothing. A failure is logged and the node goes on.
func notifySupervisor(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("the service manager was not notified", "state", state, "error", err)
	}
}

// listening lists the addresses that a node serves at, for its log.
func listening(node fleet.Role) (out []any) {
	add := func(key string, a net.Addr) {
		if a != nil {
			out = append(out, key, a.String())
		}
	}
	switch n := node.(type) {
	case *global.Server:
		add("http", n.HTTPAddr())
		add("uplink", n.UplinkAddr())
		add("raft", n.RaftAddr())
	case *regional.Gateway:
		add("http", n.HTTPAddr())
		add("uplink", n.UplinkAddr())
		add("peer", n.PeerAddr())
		add("metrics", n.MetricsAddr())
	case *single:
		add("http", n.gateway.HTTPAddr())
		add("metrics", n.gateway.MetricsAddr())
		out = append(out, "workers", len(n.zone.Status().Workers))
	case *local.Agent:
		add("http", n.Addr())
		add("registration", n.RegistrationAddr())
		add("metrics", n.MetricsAddr())
		out = append(out, "workers", len(n.Status().Workers))
	}
	return out
}

// reloader is a node that reads its certificates, geo databases or lists of workers again while it runs.
type reloader interface{ Reload() error }

// reloadNode has the node read its files again. running is the config that it started with: keys of the config file that
// have changed since then are not in force.
func reloadNode(node fleet.Role, file string, running any, log *slog.Logger) {
	if r, ok := node.(reloader); !ok {
		log.Warn("this role has no files to read again")
	} else if err := r.Reload(); err != nil {
		log.Error("reload refused, what was loaded before stays in force", "error", err)
	} else {
		log.Info("reloaded certificates, databases and lists from the files that the running config names")
	}
	next, err := config.LoadFile(file)
	if err != nil {
		log.Error("the config file is invalid: the node goes on and could not be started with it", "config", file, "error", err)
		return
	}
	keys := slices.DeleteFunc(config.ChangedKeys(running, next), func(key string) bool { return key == keyDrainTimeout })
	if len(keys) > 0 {
		log.Warn("changed keys of the config file are not in force: restart the node", "config", file, "keys", strings.Join(keys, ","))
	}
}

// keyDrainTimeout is read when the node stops (see stopWithin).
const keyDrainTimeout = "drain_timeout"
