"""Scripted experts: policies that solve one task each from the instruction and the page alone.

They act through the environment like any agent; what they do and the evaluator calls a success becomes a
demonstration.
"""

from __future__ import annotations

from collections.abc import Mapping

from webagent_rollout.experts import arena, clicking, exploring, forms, mail, reading
from webagent_rollout.experts.script import Expert, ExpertLost, Script, ScriptedExpert

__all__ = ["EXPERTS", "Expert", "ExpertLost"]

_MINIWOB: Mapping[str, Script] = {
    "choose-date": exploring.pick_date,
    "choose-date-easy": exploring.pick_date,
    "choose-date-medium": exploring.pick_date,
    "choose-date-nodelay": exploring.pick_date,
    "choose-list": forms.choose_from_list,
    "click-button": clicking.named_button,
    "click-button-sequence": clicking.button_sequence,
    "click-checkboxes": forms.check_named,
    "click-checkboxes-large": forms.check_named,
    "click-checkboxes-transfer": forms.check_named,
    "click-collapsible": exploring.expand_and_submit,
    "click-collapsible-2": exploring.link_in_sections,
    "click-collapsible-2-nodelay": exploring.link_in_sections,
    "click-collapsible-nodelay": exploring.expand_and_submit,
    "click-dialog": clicking.only_button,
    "click-dialog-2": clicking.dialog_button,
    "click-link": clicking.named_link,
    "click-menu": exploring.menu_entry,
    "click-option": forms.choose_option,
    "click-scroll-list": forms.choose_from_list,
    "click-tab": clicking.named_tab,
    "click-tab-2": exploring.link_in_tabs,
    "click-tab-2-easy": exploring.link_in_tabs,
    "click-tab-2-hard": exploring.link_in_tabs,
    "click-tab-2-medium": exploring.link_in_tabs,
    "click-test": clicking.only_button,
    "click-test-2": clicking.numbered_button,
    "click-test-transfer": clicking.numbered_button,
    "click-widget": clicking.widget,
    "copy-paste": reading.copy_area,
    "copy-paste-2": reading.copy_area,
    "email-inbox": mail.mail,
    "email-inbox-delete": mail.mail,
    "email-inbox-forward": mail.mail,
    "email-inbox-important": mail.mail,
    "email-inbox-noscroll": mail.mail,
    "email-inbox-reply": mail.mail,
    "email-inbox-star-reply": mail.mail,
    "enter-date": forms.enter_date,
    "enter-password": forms.enter_password,
    "enter-text": forms.enter_text,
    "enter-text-2": forms.enter_text_in_case,
    "enter-text-dynamic": forms.enter_text,
    "enter-time": forms.enter_time,
    "find-word": reading.nth_word,
    "focus-text": clicking.only_field,
    "focus-text-2": clicking.nth_field,
    "form-sequence-2": forms.radio_and_number,
    "form-sequence-3": forms.dropdown_then_button,
    "guess-number": reading.guess_number,
    "login-user": forms.login,
    "login-user-popup": forms.login,
    "multi-layouts": forms.movie_search,
    "multi-orderings": forms.movie_search,
    "navigate-tree": exploring.tree_entry,
    "odd-or-even": reading.odd_or_even,
    "phone-book": exploring.contact_detail,
    "read-table": reading.table_value,
    "read-table-2": reading.table_values,
    "search-engine": exploring.search_result,
    "simple-algebra": reading.algebra,
    "simple-arithmetic": reading.arithmetic,
    "social-media": clicking.post_button,
    "text-transform": reading.spelled_out,
    "unicode-test": clicking.named_button,
    "use-autocomplete": exploring.autocomplete,
    "use-autocomplete-nodelay": exploring.autocomplete,
    "use-spinner": forms.spinner,
}

EXPERTS: Mapping[str, ScriptedExpert] = {
    f"{suite}/{task}": ScriptedExpert(script)
    for suite, scripts in (("miniwob", _MINIWOB), ("arena", arena.SCRIPTS))
    for task, script in scripts.items()
}
