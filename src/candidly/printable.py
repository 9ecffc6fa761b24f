"""Text of unknown origin, made safe to look at."""


def visible(text: str) -> str:
    r"""Replace everything that is not printable by an escape that can be seen: no terminal takes it for a command.

    That is control codes, line breaks, surrogates, spaces other than the plain one, and characters that turn the
    direction of writing.

    Examples
    --------
    >>> visible("\x1b[31mred\n"), visible("a\u202eb")
    ('\\x1b[31mred\\n', 'a\\u202eb')
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
