package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/chaos/fault"
)

// newFaultCommand is hidden: `spillway drill` uses faults with a hypothesis. By hand they are useful while a fault or a
// drill is written.
func newFaultCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "fault",
		Short:  "Inject single faults into a local fleet of processes that has relays",
		Hidden: true,
		Args:   rejectUnknownCommand,
		RunE:   func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newFaultHolder(fault.RelayRole), newFaultHolder(fault.AgentRole), newFaultKindsCommand(), newFaultInjectCommand(), newFaultClearCommand(), newFaultListCommand())
	return cmd
}

// newFaultHolder is the command of a process that holds leases; see fault.Hold.
func newFaultHolder(role string) *cobra.Command {
	return &cobra.Command{
		Use:     role + " DIR",
		Short:   "Hold the leases of faults of the fleet in DIR; started by the fleet",
		Example: "  spillway fault " + role + " ./fleet",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			log, err := newLogger(cmd, "info")
			if err != nil {
				return err
			}
			return fault.Hold(cmd.Context(), role, args[0], log)
		},
	}
}

func newFaultKindsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "kinds",
		Short:   "List the kinds of faults with their targets and parameters",
		Example: "  spillway fault kinds",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			writeTable(cmd.OutOrStdout(), func(w io.Writer) {
				fmt.Fprintln(w, "KIND\tTARGETS\tPARAMETERS\tEFFECT")
				for _, k := range fault.Kinds() {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", k.Kind, dashIfEmpty(joinScopes(k.Scopes)), dashIfEmpty(joinParams(k.Params)), k.Summary)
				}
			})
			return nil
		},
	}
}

func joinScopes(scopes []fault.Scope) string {
	var out []string
	for _, s := range scopes {
		out = append(out, string(s))
	}
	return strings.Join(out, "|")
}

func joinParams(params []fault.Param) string {
	var out []string
	for _, p := range params {
		text := p.Name
		if !p.Required {
			text = "[" + text + "]"
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

// faultOptions holds the flags of `fault inject`.
type faultOptions struct {
	dir    string
	spec   fault.Spec
	params map[string]string
}

func newFaultInjectCommand() *cobra.Command {
	var o faultOptions
	cmd := &cobra.Command{
		Use:     "inject KIND --dir DIR --lease DURATION [--node|--link|--region|--zone|--worker NAME] [--param NAME=VALUE]...",
		Short:   "Inject a fault; it ends by itself after its lease",
		Example: "  spillway fault inject link_delay --dir ./fleet --link 'raft:g1>*' --param delay=200ms --lease 30s\n  spillway fault inject process_pause --dir ./fleet --node leader --lease 5s",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.spec.Kind, o.spec.Params = fault.Kind(args[0]), o.params
			if o.spec.ID == "" {
				o.spec.ID = fmt.Sprintf("%s-%d", args[0], time.Now().Unix())
			}
			in, err := fault.Open(o.dir)
			if err != nil {
				return err
			}
			if err := in.Inject(cmd.Context(), o.spec); err != nil {
				return err
			}
			return printFault(cmd.Context(), cmd.OutOrStdout(), in, o.spec.ID)
		},
	}
	f := cmd.Flags()
	addFleetDirFlag(cmd, &o.dir)
	f.StringVar(&o.spec.ID, "id", "", "name of the fault (default: kind and time)")
	f.DurationVar(&o.spec.Lease, "lease", 30*time.Second, "how long the fault lasts")
	f.StringVar(&o.spec.Target.Node, "node", "", "node to injure, or leader")
	f.StringVar(&o.spec.Target.Link, "link", "", "link to injure, CLASS:DIALER>LISTENER; * matches any part")
	f.StringVar(&o.spec.Target.Region, "region", "", "region to injure")
	f.StringVar(&o.spec.Target.Zone, "zone", "", "zone to injure, REGION/ZONE")
	f.StringVar(&o.spec.Target.Worker, "worker", "", "worker to injure; * matches any part")
	f.StringToStringVar(&o.params, "param", nil, "parameter of the kind, NAME=VALUE; repeat it for more")
	return cmd
}

func addFleetDirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", "", "folder of the fleet")
	cmd.MarkFlagRequired("dir")
}

// printFault prints what a probe of a fault finds.
func printFault(ctx context.Context, out io.Writer, in fault.Injector, id string) error {
	s, err := in.Verify(ctx, id)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s %s: %s until %s\n  %s\n", id, s.Spec.Kind, s.Phase, s.Until.Format(time.TimeOnly), s.Probe)
	return nil
}

func newFaultClearCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:     "clear ID --dir DIR",
		Short:   "End a fault and probe that it is cleared",
		Example: "  spillway fault clear slow-leader --dir ./fleet",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := fault.Open(dir)
			if err != nil {
				return err
			}
			if err := in.Clear(cmd.Context(), args[0]); err != nil {
				return err
			}
			return printFault(cmd.Context(), cmd.OutOrStdout(), in, args[0])
		},
	}
	addFleetDirFlag(cmd, &dir)
	return cmd
}

func newFaultListCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:     "list --dir DIR",
		Short:   "List the faults in force, as JSON lines",
		Example: "  spillway fault list --dir ./fleet",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := fault.Open(dir)
			if err != nil {
				return err
			}
			all, err := in.List(cmd.Context())
			for _, s := range all {
				if err := json.NewEncoder(cmd.OutOrStdout()).Encode(s); err != nil {
					return err
				}
			}
			return err
		},
	}
	addFleetDirFlag(cmd, &dir)
	return cmd
}
