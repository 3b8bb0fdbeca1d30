package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
)

func dnssecCommand() *cobra.Command {
	var (
		to     target
		output string
	)
	cmd := &cobra.Command{
		Use:   "dnssec",
		Short: "Show how the zone is signed; sign it, roll its key, or stop",
		Long: `Show how the zone is signed, and what that waits for. Keys are made and agreed on by the global nodes, and every step is
taken only when no resolver can be left without a chain of trust; deploy/runbooks/dnssec.md has them in their order.
Where it is the parent zone's turn, ` + "`spillway dnssec ds`" + ` prints what that is to show, and ` + "`spillway dnssec seen`" + ` goes on
once it does.`,
		Example: `  spillway dnssec
  spillway dnssec enable --reason "chain of trust, ticket 4711"
  spillway dnssec ds
  spillway dnssec seen --reason "DS shown by all of a..d.nic.example"
  spillway dnssec roll --reason "yearly"
  spillway dnssec disable --reason "moving to another operator"`,
		GroupID: "operate",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("there is no %q for dnssec\nhint: ds, keys, enable, seen, roll or disable", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.call(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.DNSSEC(ctx)
				if err != nil {
					return err
				}
				if output == "json" {
					return printJSON(cmd.OutOrStdout(), a)
				}
				printDNSSEC(cmd.OutOrStdout(), a)
				return nil
			})
		},
	}
	to.flags(cmd)
	outputFlag(cmd, &output)
	cmd.AddCommand(
		dnssecDSCommand(), dnssecKeysCommand(),
		dnssecChange("enable", "Sign the zone, or go back on disable", "A new key is made and agreed on, and answers are signed from then on. The parent zone is to have no DS before\n`spillway dnssec` says so."),
		dnssecChange("roll", "Bring in another key in place of the one in use", "The new key is shown beside the old one first, and signs answers when every resolver has it. Then the parent zone's DS\nis to be replaced, and the old key goes when nothing needs it any more."),
		dnssecChange("seen", "Say that the parent zone shows what `spillway dnssec ds` prints", "Say that every server of the parent zone shows what `spillway dnssec ds` prints, and nothing else. Look with dig before:\nwhat is said here is believed."),
		dnssecChange("disable", "Stop signing, as soon as that breaks nothing", "The parent zone is to remove its DS first. Answers are signed until no resolver holds the DS any more."),
	)
	return cmd
}

func dnssecDSCommand() *cobra.Command {
	return dnssecRecords("ds", "Print the DS record that the parent zone is to show", func(a *admin.DNSSECAnswer) ([]string, error) {
		if len(a.DS) == 0 {
			return nil, fmt.Errorf("the parent zone is to show no DS: %s is %s\nhint: %s", a.Zone, a.Phase, a.Next)
		}
		return a.DS, nil
	})
}

func dnssecKeysCommand() *cobra.Command {
	return dnssecRecords("keys", "Print the zone's public keys as records; the first signs answers", func(a *admin.DNSSECAnswer) (records []string, err error) {
		if len(a.Keys) == 0 {
			return nil, errors.New("the zone is not signed\nhint: " + a.Next)
		}
		for _, k := range a.Keys {
			records = append(records, k.Record)
		}
		return records, nil
	})
}

// dnssecRecords prints records on standard output and nothing else there, to be handed on as they are.
func dnssecRecords(use, short string, records func(*admin.DNSSECAnswer) ([]string, error)) *cobra.Command {
	var to target
	cmd := &cobra.Command{
		Use:     use,
		Short:   short,
		Example: "  spillway dnssec " + use,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.call(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.DNSSEC(ctx)
				if err != nil {
					return err
				}
				lines, err := records(a)
				for _, line := range lines {
					fmt.Fprintln(cmd.OutOrStdout(), line)
				}
				return err
			})
		},
	}
	to.flags(cmd)
	return cmd
}

// dnssecChange is a verb that takes a step.
func dnssecChange(action, short, long string) *cobra.Command {
	var (
		to     target
		reason string
	)
	cmd := &cobra.Command{
		Use: action, Short: short, Long: short + ".\n\n" + long,
		Example: "  spillway dnssec " + action + ` --reason "..."`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.call(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.ChangeDNSSEC(ctx, admin.DNSSECRequest{Action: action, Reason: reason})
				if err != nil {
					return err
				}
				printDNSSEC(cmd.OutOrStdout(), a)
				return nil
			})
		},
	}
	to.flags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit")
	return cmd
}

func printDNSSEC(w io.Writer, a *admin.DNSSECAnswer) {
	fmt.Fprintf(w, "zone %s: %s", a.Zone, a.Phase)
	if !a.Since.IsZero() {
		fmt.Fprintf(w, " since %s", a.Since.Format(time.RFC3339))
	}
	if !a.Due.IsZero() {
		fmt.Fprintf(w, ", next step not before %s", a.Due.Format(time.RFC3339))
	}
	fmt.Fprintln(w)
	if len(a.Keys) > 0 {
		table(w, func(t io.Writer) {
			fmt.Fprintln(t, "KEY\tMADE\tSIGNS")
			for _, k := range a.Keys {
				signs := "the keys"
				if k.SignsAnswers {
					signs = "answers and the keys"
				}
				fmt.Fprintf(t, "%d\t%s\t%s\n", k.Tag, k.Made.Format(time.RFC3339), signs)
			}
		})
	}
	fmt.Fprintln(w, "next:", a.Next)
}
