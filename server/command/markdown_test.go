package command

import (
	"slices"
	"strings"
	"testing"
)

func TestDocumentationExplainsEveryFlag(t *testing.T) {
	var all Flags
	for _, f := range flagMeanings {
		all |= f.flag
		if len(f.flag.names()) != 1 || f.text == "" {
			t.Errorf("flag %v is explained by %q", f.flag.names(), f.text)
		}
	}
	if got := all.names(); !slices.Equal(got, flagNames) || len(flagMeanings) != len(flagNames) {
		t.Errorf("explained are %v, there are %v", got, flagNames)
	}
}

func TestDocumentationListsDecisionsFirst(t *testing.T) {
	for _, group := range Groups {
		list := documentedOrder(group)
		if group == "limiter" {
			for i, name := range decisionOrder {
				if list[i].Name != name {
					t.Errorf("place %d of %s is %s, want %s", i, group, list[i].Name, name)
				}
			}
			continue
		}
		// Elsewhere the order is the table's.
		if !slices.IsSortedFunc(list, func(a, b *Command) int { return int(a.index - b.index) }) {
			t.Errorf("the commands of %s are not in the table's order", group)
		}
	}
}

func TestDocumentationTellsOnlyOtherVersions(t *testing.T) {
	c := Command{Summary: "Does it", Since: "0.2.0", Flags: Write | Fast}
	if got, want := about(&c, "0.1.0"), "Does it. Since 0.2.0.\n\nFlags: write, fast."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := about(&c, "0.2.0"), "Does it.\n\nFlags: write, fast."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if strings.Contains(Markdown(), "Since "+commands.top[0].Since) {
		t.Error("the version that all commands have is repeated")
	}
}
