package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
)

func newMembersCommand() *cobra.Command {
	var (
		to     adminTarget
		output string
	)
	cmd := &cobra.Command{
		Use:   "members",
		Short: "List the members of the Raft cluster; add or remove one, or transfer leadership",
		Long: `List the global nodes of the Raft cluster. To add a node while the others run, write a config with raft.join: true and the
other nodes under raft.peers, start it, and run "spillway members add" against any node.

Columns, as measured by the node that answers:
  LAST CONTACT  time since the last message from the member
  LAG           log entries that the member has not yet received
  CLOCK         offset of the member's wall clock from this node's. While the leader's clock is more than 5s off the
                median of the voters' clocks, it ends no drains, rotates no ticket keys and takes no DNSSEC step.
  AUTO-REMOVE   the leader removes a voter that is unreachable from all others for raft.remove_after, if
                raft.min_voters remain`,
		Example: `  spillway members
  spillway members add g4 10.0.4.1:7400
  spillway members add edge1 10.9.0.1:7400 --non-voter
  spillway members lead g2
  spillway members remove g1 --reason "machine retired"`,
		GroupID: "operate",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return newUsageError("members [add|remove|lead]", "")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.ListMembers(ctx)
				if err != nil {
					return err
				}
				if isStructured(output) {
					return printStructured(cmd.OutOrStdout(), output, a)
				}
				printMembers(cmd.OutOrStdout(), a)
				return nil
			})
		},
	}
	to.addFlags(cmd)
	addOutputFlag(cmd, &output)
	cmd.AddCommand(newMemberAddCommand(), newMemberRemoveCommand(), newMemberLeadCommand())
	return cmd
}

func newMemberAddCommand() *cobra.Command {
	var (
		to     adminTarget
		edge   bool
		reason string
	)
	cmd := &cobra.Command{
		Use:   "add NAME HOST:PORT",
		Short: "Add a global node to the Raft cluster",
		Long: `Add a global node to the Raft cluster. HOST:PORT is its raft.advertise. Start the node first. A new voter begins as a
non-voter and is promoted once it has caught up, or else once it has kept up for 10s. With --non-voter it replicates the state and
answers DNS without counting for a majority, which suits name servers at the edge.`,
		Example: "  spillway members add g4 10.0.4.1:7400\n  spillway members add edge1 10.9.0.1:7400 --non-voter",
		Args:    requireArgs("members add NAME HOST:PORT", 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeMembers(cmd, &to, func(ctx context.Context, c *admin.Client) (*admin.MembersAnswer, error) {
				return c.AddMember(ctx, admin.MemberRequest{Name: args[0], Addr: args[1], Voter: !edge, Reason: reason})
			})
		},
	}
	to.addFlags(cmd)
	cmd.Flags().BoolVar(&edge, "non-voter", false, "replicate and answer without counting for a majority")
	cmd.Flags().StringVar(&reason, "reason", "", "reason, for the audit log")
	return cmd
}

func newMemberRemoveCommand() *cobra.Command {
	var (
		to     adminTarget
		reason string
	)
	cmd := &cobra.Command{
		Use:     "remove NAME",
		Short:   "Remove a global node from the Raft cluster; it answers from its last state until it is stopped",
		Example: "  spillway members remove g1",
		Args:    requireArgs("members remove NAME", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeMembers(cmd, &to, func(ctx context.Context, c *admin.Client) (*admin.MembersAnswer, error) {
				return c.RemoveMember(ctx, args[0], reason)
			})
		},
	}
	to.addFlags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "reason, for the audit log")
	return cmd
}

func newMemberLeadCommand() *cobra.Command {
	var (
		to     adminTarget
		reason string
	)
	cmd := &cobra.Command{
		Use:     "lead [NAME]",
		Short:   "Transfer leadership to a voter; without NAME, to the most up-to-date one",
		Example: "  spillway members lead g2",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			return changeMembers(cmd, &to, func(ctx context.Context, c *admin.Client) (*admin.MembersAnswer, error) {
				return c.TransferLeadership(ctx, admin.LeaderRequest{To: name, Reason: reason})
			})
		},
	}
	to.addFlags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "reason, for the audit log")
	return cmd
}

// changeMembers makes a change and prints the members after it.
func changeMembers(cmd *cobra.Command, to *adminTarget, do func(context.Context, *admin.Client) (*admin.MembersAnswer, error)) error {
	return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
		a, err := do(ctx, c)
		if err != nil {
			return err
		}
		printMembers(cmd.OutOrStdout(), a)
		return nil
	})
}

func printMembers(w io.Writer, a *admin.MembersAnswer) {
	voters := 0
	writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "NAME\tADDRESS\tVOTER\tLEADER\tHEALTH\tLAST CONTACT\tLAG\tCLOCK\tAUTO-REMOVE")
		for _, m := range a.Members {
			voter, leader := "no", "-"
			if m.Voter {
				voter = "yes"
				voters++
			}
			if m.Leader {
				leader = "yes"
			}
			contact, lag, clock := "-", "-", "-"
			if m.LastContactMS != nil {
				contact = formatAge(*m.LastContactMS) + " ago"
			}
			if m.Behind != nil {
				lag = strconv.FormatUint(*m.Behind, 10)
			}
			if m.ClockOffsetMS != nil {
				clock = fmt.Sprintf("%+.3fs", float64(*m.ClockOffsetMS)/1000)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.Name, m.Addr, voter, leader, formatMemberHealth(m.Health), contact, lag, clock, cmp.Or(m.Outlook, "-"))
		}
	})
	if a.Clock != nil {
		fmt.Fprintf(w, "clock of %s: %s\n", a.Node, a.Clock.Text)
	}
	if a.Outside != "" {
		fmt.Fprintf(w, "note: %s\n", a.Outside)
	}
	fmt.Fprintf(w, "answered by %s: ", a.Node)
	quorum := voters/2 + 1
	switch {
	case a.CanWrite == nil || a.Spare == nil: // a node of an earlier release
		fmt.Fprintf(w, "%d voters, quorum %d, tolerates %s if all are healthy\n", voters, quorum, formatPlural(max(voters-1, 0)/2, "failure"))
	case *a.Spare < 0:
		fmt.Fprintf(w, "%d voters, quorum %d, %d can write: no changes are possible until %d more can\n", voters, quorum, *a.CanWrite, -*a.Spare)
	default:
		fmt.Fprintf(w, "%d voters, quorum %d, %d can write: tolerates %s\n", voters, quorum, *a.CanWrite, formatPlural(*a.Spare, "failure"))
	}
}

// formatMemberHealth returns a member's health for the table. The API uses other words, which earlier releases read.
func formatMemberHealth(health string) string {
	switch health {
	case admin.MemberHealthy:
		return "healthy"
	case admin.MemberBehind:
		return "lagging"
	case admin.MemberSilent:
		return "unreachable"
	}
	return dashIfEmpty(health)
}

// requireArgs requires n arguments. usage is the usage line without the program's name.
func requireArgs(usage string, n int) cobra.PositionalArgs { return requireArgRange(usage, n, n) }

// requireMinArgs requires at least n arguments.
func requireMinArgs(usage string, n int) cobra.PositionalArgs {
	return requireArgRange(usage, n, math.MaxInt)
}

// requireArgRange requires from low to high arguments.
func requireArgRange(usage string, low, high int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < low || len(args) > high {
			return newUsageError(usage, "")
		}
		return nil
	}
}
