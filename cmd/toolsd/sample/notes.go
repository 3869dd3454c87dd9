package sample

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
)

type note struct {
	ID    int      `json:"id"`
	Title string   `json:"title"`
	Text  string   `json:"text"`
	Tags  []string `json:"tags"`
}

type notebook struct {
	mu    sync.Mutex
	last  int
	notes []note
}

// Notes is a notebook that is empty at first.
func Notes() *Server {
	n := &notebook{}
	id := []property{integer("id", "Number of the note").min(1)}
	return &Server{
		Name: "notes", Instructions: "A notebook in memory: add, find and delete short notes.",
		Tools: []Tool{
			define("add_note", changes, "Write a new note with a title, a text and tags.",
				[]property{text("title", "Title"), text("text", "What to remember"), texts("tags", "Words to group notes by").or([]string{})}, n.add),
			define("list_notes", reads, "List all notes, or those with one tag.",
				[]property{text("tag", "Only notes with this tag").optional()}, n.list),
			define("search_notes", reads, "Find notes whose title or text holds some words.",
				[]property{text("query", "Words that must all occur")}, n.search),
			define("get_note", reads, "Read one note.", id, n.get),
			define("delete_note", destroys, "Delete one note for good.", id, n.delete),
		},
	}
}

type noteID struct{ ID int }

func (n *notebook) add(_ context.Context, a note, _ Progress) (any, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last++
	a.ID = n.last
	if a.Tags == nil {
		a.Tags = []string{}
	}
	n.notes = append(n.notes, a)
	return a, nil
}

type noteList struct {
	Notes []note `json:"notes"`
}

func (n *notebook) filter(keep func(note) bool) (any, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := []note{}
	for _, one := range n.notes {
		if keep(one) {
			found = append(found, one)
		}
	}
	return noteList{found}, nil
}

func (n *notebook) list(_ context.Context, a struct{ Tag string }, _ Progress) (any, error) {
	return n.filter(func(one note) bool { return a.Tag == "" || slices.Contains(one.Tags, a.Tag) })
}

func (n *notebook) search(_ context.Context, a struct{ Query string }, _ Progress) (any, error) {
	words := strings.Fields(strings.ToLower(a.Query))
	return n.filter(func(one note) bool {
		in := strings.ToLower(one.Title + " " + one.Text)
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(in, w) })
	})
}

func (n *notebook) get(_ context.Context, a noteID, _ Progress) (any, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, one := range n.notes {
		if one.ID == a.ID {
			return one, nil
		}
	}
	return nil, fmt.Errorf("there is no note %d", a.ID)
}

func (n *notebook) delete(_ context.Context, a noteID, _ Progress) (any, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := len(n.notes)
	n.notes = slices.DeleteFunc(n.notes, func(one note) bool { return one.ID == a.ID })
	if len(n.notes) == before {
		return nil, fmt.Errorf("there is no note %d", a.ID)
	}
	return fmt.Sprintf("deleted note %d", a.ID), nil
}
