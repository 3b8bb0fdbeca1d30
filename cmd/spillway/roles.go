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
	"github.com/spillway-lb/spillway/internal/runtimetune"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/regional"
)

func newGlobalCommand() *cobra.Command {
	return newRoleCommand(config.RoleGlobal, "Run a global node: DNS, redirects, steering, Raft")
}

func newRegionalCommand() *cobra.Command {
	return newRoleCommand(config.RoleRegional, "Run a gateway: the entry point of a region for clients")
}

func newLocalCommand() *cobra.Command {
	return newRoleCommand(config.RoleLocal, "Run a local instance: queues and worker choice of a zone")
}

func newWorkerCommand() *cobra.Command {
	return newRoleCommand(config.RoleWorker, "Run a simulated GPU worker with the API and timing of vLLM")
}

// newRoleCommand returns the command that runs one node from its config file until SIGTERM or SIGINT.
func newRoleCommand(role, short string) *cobra.Command {
	var file, level string
	cmd := &cobra.Command{
		Use:     role + " -c FILE",
		Short:   short,
		Long:    short + ".\n\n`spillway config init " + role + "` writes a commented FILE, `spillway config describe " + role + "` describes every key.\nSIGHUP reloads certificates, geo databases and worker lists, and logs changed keys of FILE that need a restart.\nSIGTERM or Ctrl-C stops gracefully.",
		Example: "  spillway config init " + role + " > " + role + ".yaml\n  spillway " + role + " -c " + role + ".yaml",
		GroupID: "run",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLogger(cmd, level)
			if err != nil {
				return err
			}
			if err := expectRole(file, role); err != nil {
				return err
			}
			growDescriptors(initialDescriptors)
			if role != config.RoleWorker { // a simulated worker relays no traffic
				go runSchedulerKeepAlive(cmd.Context())
				go runtimetune.TuneGC(cmd.Context())
			}
			return runNode(cmd.Context(), file, log)
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "the node's config file")
	addLogLevelFlag(cmd, &level, "info")
	panicOnError(cmd.MarkFlagRequired("config"))
	return cmd
}

// addLogLevelFlag adds --log-level, whose values newLogger checks.
func addLogLevelFlag(cmd *cobra.Command, level *string, def string) {
	cmd.Flags().StringVar(level, "log-level", def, "debug, info, warn or error")
	panicOnError(cmd.RegisterFlagCompletionFunc("log-level", cobra.FixedCompletions([]string{"debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp)))
}

func newLogger(cmd *cobra.Command, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("unknown --log-level %q: write debug, info, warn or error", level)
	}
	return slog.New(telemetry.NewLevelHandler(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelDebug}), l)), nil
}

// expectRole reports a config file of another role, before its keys are reported as unknown.
func expectRole(file, role string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the config: %w", err)
	}
	if got := config.RoleOf(text); got != role && slices.Contains(config.RoleNames(), got) {
		return fmt.Errorf("%s is the config of role %s: run `spillway %s -c %s`", file, got, got, file)
	}
	return nil
}

// defaultStopTimeout bounds the graceful stop of a node without drain_timeout.
const defaultStopTimeout = 30 * time.Second

// readStopTimeout returns how long a node may take to stop, from the current content of its config file.
func readStopTimeout(file string) time.Duration {
	cfg, err := config.LoadFile(file)
	if err != nil {
		return defaultStopTimeout
	}
	switch c := cfg.(type) {
	case *config.Regional:
		return c.DrainTimeout
	case *config.Local:
		return c.DrainTimeout
	}
	return defaultStopTimeout
}

// initialDescriptors is the initial size of a node's file descriptor table (see growDescriptors), which takes 80 KB.
const initialDescriptors = 8192

func runNode(ctx context.Context, file string, log *slog.Logger) error {
	running, err := config.LoadFile(file)
	if err != nil {
		return err
	}
	node, err := openRole(file, log)
	if err != nil {
		return err
	}
	// The node's context outlives the signal, because it stops gracefully.
	if err := node.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	log.Info("serving", append([]any{"config", file, "version", version}, listListenAddrs(node)...)...)
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	notifySupervisor(log, daemon.SdNotifyReady) // after signal.Notify: without it a SIGHUP would end the process
	for {
		select {
		case <-reload:
			notifySupervisor(log, daemon.SdNotifyReloading)
			reloadNode(node, file, running, log)
			notifySupervisor(log, daemon.SdNotifyReady)
		case <-ctx.Done():
			log.Info("stopping")
			notifySupervisor(log, daemon.SdNotifyStopping)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readStopTimeout(file))
			defer cancel()
			return node.Stop(ctx)
		}
	}
}

// notifySupervisor reports a change of state to the service manager that set NOTIFY_SOCKET (sd_notify(3)). Without one it
// does nothing. A failure is logged and otherwise ignored.
func notifySupervisor(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("cannot notify the service manager", "state", state, "error", err)
	}
}

// listListenAddrs lists a node's listeners as keys and values for the log.
func listListenAddrs(node fleet.Runner) (out []any) {
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
	case *zoneWithGateway:
		add("http", n.gateway.HTTPAddr())
		add("metrics", n.gateway.MetricsAddr())
		out = append(out, "workers", len(n.zone.Status().Workers))
	case *local.Agent:
		add("http", n.Addr())
		add("registration", n.RegistrationAddr())
		add("endpoint picker", n.PickerAddr())
		add("metrics", n.MetricsAddr())
		out = append(out, "workers", len(n.Status().Workers))
	}
	return out
}

// reloader is a node that can reload its certificates, geo databases or worker lists.
type reloader interface{ Reload() error }

// reloadNode makes the node reload its files. running is the config that it started with: keys of the config file that
// changed since then are not in force.
func reloadNode(node fleet.Runner, file string, running any, log *slog.Logger) {
	if r, ok := node.(reloader); !ok {
		log.Warn("this role has no files to reload")
	} else if err := r.Reload(); err != nil {
		log.Error("reload failed: the earlier files stay in force", "error", err)
	} else {
		log.Info("reloaded certificates, geo databases and worker lists")
	}
	next, err := config.LoadFile(file)
	if err != nil {
		log.Error("the config file is invalid: the node keeps running and would not start again", "config", file, "error", err)
		return
	}
	keys := slices.DeleteFunc(config.ChangedKeys(running, next), func(key string) bool { return key == keyDrainTimeout })
	if len(keys) > 0 {
		log.Warn("changed keys of the config file are not in force: restart the node", "config", file, "keys", strings.Join(keys, ","))
	}
}

// keyDrainTimeout needs no restart: it is read when the node stops (see readStopTimeout).
const keyDrainTimeout = "drain_timeout"
