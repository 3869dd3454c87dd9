package main

import (
	"github.com/spf13/cobra"

	"github.com/toolsd/toolsd/ipc"
)

func newCategoriesCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "categories",
		Short: "List the categories that tools are in",
		Example: `  toolsd categories
  toolsd categories --json | jq -r '.categories[].name'`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, dir, err := a.reach(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			list, err := client.Categories(cmd.Context(), ipc.CategoriesRequest{CWD: dir})
			if err != nil {
				return err
			}
			a.print(list, func(s *screen) {
				var rows [][]cell
				for _, c := range list.Categories {
					rows = append(rows, []cell{{c.Name, cyan}, plain(thousands(c.Tools)), plain(c.Server), plain(c.Description)})
				}
				if len(rows) > 0 {
					s.table([]string{"category", "tools>", "server", "description"}, rows)
					s.line("")
				}
				s.line("%s, each counted once, in %s", count(list.Total, "tool", "tools"), count(len(list.Categories), "category", "categories"))
			})
			if len(list.Categories) > 0 {
				a.hint("`toolsd category %s` lists its tools", list.Categories[0].Name)
			} else {
				a.hint("`toolsd status` shows the servers and where they are defined")
			}
			return nil
		},
	}
}

func newCategoryCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "category <name>",
		Short:             "List the tools of a category",
		Example:           "  toolsd category export",
		Args:              takes(1, 1, "the name of a category"),
		ValidArgsFunction: first(a.completeCategories),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return usage(cmd, "the name of the category is empty") // it would ask for all
			}
			client, dir, err := a.reach(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			list, err := client.Categories(cmd.Context(), ipc.CategoriesRequest{Name: args[0], CWD: dir})
			if err != nil {
				return err
			}
			a.print(list, func(s *screen) {
				for _, c := range list.Categories {
					s.line("%s  %s", s.style(bold, cleanLine(c.Name)), s.style(dim, count(c.Tools, "tool", "tools")))
					s.paragraph(2, "", c.Description)
					var rows [][]cell
					for _, t := range c.Members {
						rows = append(rows, []cell{{"  " + t.ToolID, cyan}, plain(thousands(t.Tokens)), plain(firstSentence(t.Description))})
					}
					if len(rows) > 0 {
						s.table([]string{"  tool", "tokens>", "description"}, rows)
					}
				}
			})
			a.hint("`toolsd activate <tool>` shows its arguments")
			return nil
		},
	}
}
