"""The suite "arena": five small web sites in the manner of WebArena's, with tasks in its format.

    suite.py      the suite: a server, worlds, and sessions that enter them
    world.py      one session's data, made from a seed
    site.py       what a site is: pages and forms over a world
    intents.py    what a task is: an intent template, and its instantiations in a world
    words.py      names that data is made of
    pages/        the frame of all sites' pages
    shop/ ...     a site each: data.py, site.py, tasks.py, pages/

What always holds: a session's world is its own, and two worlds of one number begin equal.
"""
