package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
)

func membersCommand() *cobra.Command {
	var (
		to     target
		output string
	)
	cmd := &cobra.Command{
		Use:   "members",
		Short: "List the global nodes; add or remove one, or hand leadership on",
		Long: `List the global nodes: who votes and who leads. A node is added while the others run: give it a config with
raft.join: true and the others under raft.peers, start it, and add it from any node.

HEARD is when the node asked last heard of a member, BEHIND how many log entries that lacks. A voter that no other has
heard of for raft.remove_after is taken out by the leader, if raft.min_voters are left; OUTLOOK says so beforehand.`,
		Example: `  spillway members
  spillway members add g4 10.0.4.1:7400
  spillway members add edge1 10.9.0.1:7400 --non-voter
  spillway members lead g2
  spillway members remove g1 --reason "machine retired"`,
		GroupID: "operate",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("there is no %q for members\nhint: add, remove or lead", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.call(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.Members(ctx)
				if err != nil {
					return err
				}
				if output == "json" {
					return printJSON(cmd.OutOrStdout(), a)
				}
				printMembers(cmd.OutOrStdout(), a)
				return nil
			})
		},
	}
	to.flags(cmd)
	outputFlag(cmd, &output)
	cmd.AddCommand(memberAddCommand(), memberRemoveCommand(), memberLeadCommand())
	return cmd
}

func memberAddCommand() *cobra.Command {
	var (
		to     target
		edge   bool
		reason string
	)
	cmd := &cobra.Command{
		Use:   "add NAME HOST:PORT",
		Short: "Have a global node take part",
		Long: `Have a global node take part. HOST:PORT is its raft.advertise. Start it first: a new voter follows, and gets its vote
when it has caught up, or later when it has kept up for 10s; with --non-voter it follows and answers without ever counting for a majority, which suits name
servers at the edge.`,
		Example: "  spillway members add g4 10.0.4.1:7400\n  spillway members add edge1 10.9.0.1:7400 --non-voter",
		Args:    exactly("NAME and HOST:PORT", 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeMembers(cmd, &to, func(ctx context.Context, c *admin.Client) (*admin.MembersAnswer, error) {
				return c.AddMember(ctx, admin.MemberRequest{Name: args[0], Addr: args[1], Voter: !edge, Reason: reason})
			})
		},
	}
	to.flags(cmd)
	cmd.Flags().BoolVar(&edge, "non-voter", false, "follow and answer without counting for a majority")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit")
	return cmd
}

func memberRemoveCommand() *cobra.Command {
	var (
		to     target
		reason string
	)
	cmd := &cobra.Command{
		Use:     "remove NAME",
		Short:   "Take a global node out; it answers from its last state until it is stopped",
		Example: "  spillway members remove g1",
		Args:    exactly("NAME", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeMembers(cmd, &to, func(ctx context.Context, c *admin.Client) (*admin.MembersAnswer, error) {
				return c.RemoveMember(ctx, args[0], reason)
			})
		},
	}
	to.flags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit")
	return cmd
}

func memberLeadCommand() *cobra.Command {
	var (
		to     target
		reason string
	)
	cmd := &cobra.Command{
		Use:     "lead [NAME]",
		Short:   "Hand leadership to a voter, or to whichever is the most up to date",
		Example: "  spillway members lead g2",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			return changeMembers(cmd, &to, func(ctx context.Context, c *admin.Client) (*admin.MembersAnswer, error) {
				return c.Lead(ctx, admin.LeaderRequest{To: name, Reason: reason})
			})
		},
	}
	to.flags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit")
	return cmd
}

// changeMembers makes a change and shows who takes part afterwards.
func changeMembers(cmd *cobra.Command, to *target, do func(context.Context, *admin.Client) (*admin.MembersAnswer, error)) error {
	return to.call(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
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
	table(w, func(t io.Writer) {
		fmt.Fprintln(t, "NAME\tADDRESS\tVOTE\tLEADS\tHEALTH\tHEARD\tBEHIND\tOUTLOOK")
		for _, m := range a.Members {
			vote, leads := "no", "-"
			if m.Voter {
				vote = "yes"
				voters++
			}
			if m.Leader {
				leads = "yes"
			}
			heard, behind := "-", "-"
			if m.LastContactMS != nil {
				heard = age(*m.LastContactMS) + " ago"
			}
			if m.Behind != nil {
				behind = strconv.FormatUint(*m.Behind, 10)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.Name, m.Addr, vote, leads, cmp.Or(m.Health, "-"), heard, behind, cmp.Or(m.Outlook, "-"))
		}
	})
	if a.Outside != "" {
		fmt.Fprintf(w, "note: %s\n", a.Outside)
	}
	switch {
	case a.CanWrite == nil || a.Spare == nil: // a node of an earlier release
		fmt.Fprintf(w, "as %s sees it; of %d with a vote, %d may be lost before nothing can be changed, if all are well\n", a.Node, voters, max(voters-1, 0)/2)
	case *a.Spare < 0:
		fmt.Fprintf(w, "as %s sees it; of %d with a vote, %d can write: nothing can be changed until %d more can\n", a.Node, voters, *a.CanWrite, -*a.Spare)
	default:
		fmt.Fprintf(w, "as %s sees it; of %d with a vote, %d can write, and %d may be lost before nothing can be changed\n", a.Node, voters, *a.CanWrite, *a.Spare)
	}
}

// exactly asks for n arguments by their names.
func exactly(names string, n int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != n {
			return fmt.Errorf("say %s", names)
		}
		return nil
	}
}
