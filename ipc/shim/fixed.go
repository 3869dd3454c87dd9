package shim

import (
	"encoding/json"
	"slices"

	"github.com/toolsd/toolsd/index/tool"
)

// The names of the fixed tools.
const (
	toolSearch      = "tool_search"
	toolCall        = "tool_call"
	listCategories  = "list_tool_categories"
	getCategoryTool = "get_category_tools"
)

// fixed are the tools that every agent has. Their bytes are part of the agent's
// prompt cache and the model pays for them in every session: all four weigh
// under 900 tokens. The descriptions hold the words that clients' own searches
// over MCP tools look for. alwaysLoad keeps Claude Code from hiding them behind
// its search. That exactly one of two inputs must be given is said in words,
// since some model APIs refuse a oneOf at the root.
var fixed = []struct {
	name       string
	definition string
}{
	{toolSearch, `{"name":"tool_search","description":"Search all MCP tools of all servers on this machine and activate what fits. Use it first whenever you need a tool that is not in your list: find by what it does, or load by name. Give either query (action and object in a few words, or exact tool names parted by commas) or tool_id. Answers {query, count, matches, note}: every match has tool_id, name and description and can be called right away; note says how. Example: {\"query\":\"export gerber files\"}",` +
		`"inputSchema":{"type":"object","properties":{"query":{"type":"string","description":"what the tool should do"},"tool_id":{"type":"string","description":"one known tool, <server>::<tool>"},"max_results":{"type":"integer","minimum":1,"description":"default 5"}}},` +
		`"annotations":{"title":"Search tools","readOnlyHint":true},"_meta":{"anthropic/alwaysLoad":true,"anthropic/searchHint":"search, find, discover and activate MCP tools"}}`},
	{toolCall, `{"name":"tool_call","description":"Call, run or execute any MCP tool by its id. For tools that tool_search or get_category_tools showed and that you cannot call by their own name. Give either tool_id or name, and arguments that fit the tool's inputSchema. Answers the tool's own result. If you have not seen the schema, or the arguments do not fit, nothing runs and the answer is the schema: call again with it. Example: {\"tool_id\":\"<server>::<tool>\",\"arguments\":{\"path\":\"a.txt\"}}",` +
		`"inputSchema":{"type":"object","properties":{"tool_id":{"type":"string","description":"<server>::<tool>"},"name":{"type":"string","description":"the name of the tool instead"},"arguments":{"type":"object","description":"the tool's own arguments"}}},` +
		`"annotations":{"title":"Call a tool","readOnlyHint":false,"destructiveHint":true,"openWorldHint":true},"_meta":{"anthropic/alwaysLoad":true,"anthropic/searchHint":"call, run and execute an MCP tool by its id"}}`},
	{listCategories, `{"name":"list_tool_categories","description":"List the categories of all available MCP tools with how many tools each has. Use it to discover or browse what is there when you have no words to search for. Answers {categories: [{name, server, description, tools}], total}. Example: {}",` +
		`"inputSchema":{"type":"object","properties":{}},` +
		`"annotations":{"title":"List tool categories","readOnlyHint":true},"_meta":{"anthropic/alwaysLoad":true,"anthropic/searchHint":"list and browse the categories of MCP tools"}}`},
	{getCategoryTool, `{"name":"get_category_tools","description":"List all tools of one category, to browse and choose from. Use it with a category that list_tool_categories showed. Answers one line per tool, <server>::<tool>: description; give such an id to tool_search or tool_call to use the tool. Example: {\"category\":\"export\"}",` +
		`"inputSchema":{"type":"object","properties":{"category":{"type":"string"}},"required":["category"]},` +
		`"annotations":{"title":"Tools of a category","readOnlyHint":true},"_meta":{"anthropic/alwaysLoad":true,"anthropic/searchHint":"list the MCP tools of a category"}}`},
}

// FixedTools returns the definitions of the fixed tools in the order in which
// they are listed. They never change within a version.
func FixedTools() []json.RawMessage {
	out := make([]json.RawMessage, len(fixed))
	for i, f := range fixed {
		out[i] = json.RawMessage(f.definition)
	}
	return out
}

// FixedNames returns the names of the fixed tools, which no other tool may get.
func FixedNames() []string {
	out := make([]string, len(fixed))
	for i, f := range fixed {
		out[i] = f.name
	}
	return out
}

// FixedTokens is what the fixed tools weigh in an agent's context, counted as
// the weight of every other tool is: name, description and input schema.
func FixedTokens() int {
	total := 0
	for _, raw := range FixedTools() {
		t, err := tool.Parse("toolsd", raw)
		if err != nil {
			panic(err) // a constant of this file
		}
		total += t.Tokens
	}
	return total
}

func isFixed(name string) bool { return slices.Contains(FixedNames(), name) }
