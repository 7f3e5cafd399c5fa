"""Every action of the explorer, once: keys, the palette and the help all read this list.

`ExploreApp` has an `action_<name>` method for each.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Action:
    """`keys` work everywhere, `plain` keys only while no text is being typed. `footer` is a short word for the footer."""

    name: str
    title: str
    help: str
    group: str
    keys: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    footer: str = ""

    @property
    def shown_keys(self) -> str:
        """The keys in words, for help and palette."""
        return ", ".join(dict.fromkeys(map(in_words, (*self.keys, *self.plain))))


ACTIONS: tuple[Action, ...] = (
    Action("save", "Save", "Write the document as the formatter prints it", "File", ("ctrl+s",), footer="Save"),
    Action("save_as", "Save as…", "Write the document to another file", "File"),
    Action("reload", "Reload from disk", "Read the file again, dropping edits", "File", ("ctrl+r",)),
    Action(
        "export",
        "Export…",
        "Write the program as .hap, .py, .dot, .svg, .png, or its timeline as .json or .chart.svg",
        "File",
        (),
        ("x",),
    ),
    Action(
        "export_script",
        "Export a training script…",
        "Write a Python script that trains the program under torchrun",
        "File",
        (),
        ("e",),
    ),
    Action(
        "run", "Run", "Run some steps on local processes and lay what they took over the prediction", "File", (), ("r",)
    ),
    Action("copy", "Copy", "Copy what is selected, else the program, to the clipboard", "File", (), ("y",)),
    Action("external_editor", "External editor", "Edit the text in $VISUAL or $EDITOR", "File", ("f4",)),
    Action("quit", "Quit", "Leave; asks where something is unsaved", "File", ("ctrl+q",), ("q",), footer="Quit"),
    Action("undo", "Undo", "Take the last edit back", "Edit", ("ctrl+z",)),
    Action("redo", "Redo", "Make it again", "Edit", ("ctrl+y",)),
    Action("format", "Format", "Print the text in the canonical form, without saving", "Edit", ("f9",)),
    Action(
        "complete",
        "Complete the sketch",
        "Have the search fill in what ? and ... leave open",
        "Edit",
        ("ctrl+n",),
        ("c",),
    ),
    Action("explain", "In plain words", "Say in plain words what the line does", "Edit", ("ctrl+b",), ("i",)),
    Action("next_problem", "Next problem", "Go to the next line with a diagnostic", "Edit", ("f8",), footer="Problem"),
    Action("previous_problem", "Previous problem", "Go to the one before", "Edit", ("shift+f8",)),
    Action(
        "fix",
        "Fix",
        "Do what the diagnostic of the line proposes, where that can be done by itself",
        "Edit",
        ("f10",),
        ("f",),
    ),
    Action(
        "unroll",
        "Roll or unroll layers",
        "Write the layers of a repeat out, or roll them again",
        "Edit",
        ("ctrl+l",),
        ("l",),
    ),
    Action(
        "fold",
        "Fold",
        "Show the block around the cursor as one line with all that it costs, or whole again",
        "Edit",
        ("ctrl+@", "ctrl+space"),
        ("z",),
    ),
    Action("fold_layers", "Fold all layers", "Fold everything that is rolled, or unfold all", "Edit", (), ("Z",)),
    Action("find", "Find", "Search the text as you type", "Move", ("ctrl+g",), ("slash",)),
    Action(
        "next_match",
        "Next place",
        "The next place of the search; without a search the next problem",
        "Move",
        (),
        ("n",),
    ),
    Action("previous_match", "Previous place", "The one before", "Move", (), ("N",)),
    Action(
        "definition",
        "Definition",
        "Go to where the name under the cursor is made, or the model's line behind this one",
        "Move",
        ("f12",),
        ("g",),
    ),
    Action("uses", "Uses", "Go to the next use of the name under the cursor", "Move", ("shift+f12",), ("u",)),
    Action("jump_back", "Back", "Back to where the last jump began", "Move", ("f11",), ("b",)),
    Action("next_plan", "Next plan", "Show the next plan of the list", "Plans", ("f3",), footer="Next plan"),
    Action("previous_plan", "Previous plan", "Show the one before", "Plans", ("f2",)),
    Action(
        "plan",
        "Plan",
        "Search a program and shares for the model, baselines first",
        "Plans",
        ("f5",),
        ("p",),
        footer="Plan",
    ),
    Action(
        "search_view",
        "Search",
        "Bound and best plan over time, what the search does; space holds it there",
        "Plans",
        (),
        ("v",),
    ),
    Action("hold", "Hold the search", "Hold the search for a while, or let it go on", "Plans"),
    Action("closer", "Search closer", "Search on, to a quarter of the gap", "Plans", (), ("full_stop",)),
    Action(
        "cancel",
        "Cancel",
        "Leave the editor; then stop what is going on (of a search the best so far is kept), close a view, go to the list of plans",
        "Plans",
        ("escape",),
    ),
    Action(
        "mark", "Mark for comparison", "Mark the plan on the screen, or take the mark away", "Plans", (), ("space",)
    ),
    Action(
        "compare",
        "Compare",
        "Plans side by side: lines, stages, devices; those marked, else this one with the others",
        "Plans",
        (),
        ("d",),
        footer="Compare",
    ),
    Action("whatif", "What if…", "Sliders for network and devices that price all plans again", "Plans", (), ("w",)),
    Action("focus_plans", "Go to the plans", "Move to the list of plans", "Panes", (), ("1",)),
    Action("focus_editor", "Go to the program", "Move to the editor", "Panes", (), ("2",)),
    Action("focus_detail", "Go to the inspector", "Move to the panel about the line", "Panes", (), ("3",)),
    Action(
        "focus_alternatives",
        "Go to the alternatives",
        "What else the line could be, with prices; enter takes one",
        "Panes",
        ("ctrl+o",),
        ("4", "a"),
        footer="Alternatives",
    ),
    Action(
        "focus_timeline",
        "Go to the timeline",
        "Move to the timeline: arrows from instruction to instruction",
        "Panes",
        (),
        ("5",),
    ),
    Action(
        "timeline",
        "Timeline",
        "When devices compute, communicate and wait, and what they hold; again to hide it",
        "View",
        ("f7",),
        ("t",),
        footer="Timeline",
    ),
    Action(
        "summary",
        "Summary",
        "What the plan does, in words; again for the program",
        "View",
        ("f6",),
        ("s",),
        footer="Summary",
    ),
    Action(
        "shares",
        "Shares",
        "Who takes how much of each class, to be changed; with what a unit is worth",
        "View",
        (),
        ("h",),
    ),
    Action("theme", "Theme…", "Choose colours", "View"),
    Action("toggle_dark", "Light or dark", "Switch between a light and a dark theme", "View", ("ctrl+t",)),
    Action(
        "palette", "Command palette", "Find an action by its name", "View", ("ctrl+p",), ("colon",), footer="Palette"
    ),
    Action("help", "Help", "List all keys", "View", ("f1",), ("question_mark",), footer="Help"),
)

# What moves and edits in the editor is the editor widget's own; help lists it beside the actions.
EDITOR_KEYS: tuple[tuple[str, str], ...] = (
    ("arrows, page up", "move; with ctrl by words, with shift select"),
    ("home, end", "start and end of the line; with ctrl of the text"),
    ("ctrl+x, c, v", "cut, copy, paste"),
    ("ctrl+w, u, k", "delete a word, to the start, to the end of the line"),
    ("tab", "indent"),
    ("click on a line's number", "folds the block that begins there, or unfolds it"),
)


def in_words(key: str) -> str:
    """A key as people write it."""
    # Terminals send the same for ctrl+space and ctrl+@; some say which.
    words = {
        "ctrl+@": "ctrl+space",
        "question_mark": "?",
        "colon": ":",
        "escape": "esc",
        "full_stop": ".",
        "slash": "/",
    }
    return words.get(key, key)
