"""The hand-written part of the chat-template corpus: small cases per feature, and whole chat templates in the style of the
common model families (written for this corpus) with conversations. Run through tools/jinja_oracle.py."""
import itertools
import json
import os
import random

CTX = {"s": "Hello World", "n": 7, "xs": [3, 1, 2], "d": {"a": 1, "b": [1, 2], "items": "x"}, "nil": None, "yes": True,
       "users": [{"name": "Bob", "age": 30, "on": True, "city": "oslo"}, {"name": "ann", "age": 25, "on": False, "city": "Rome"},
                 {"name": "Cid", "age": 30, "on": True, "city": "Oslo"}]}


def simple(group, lines, ctx=CTX):
    """One case per line (a template with \\n written as such) or per (template, context)."""
    out = []
    for i, line in enumerate(lines):
        template, context = line if isinstance(line, tuple) else (line, ctx)
        out.append({"name": f"{group} {i}", "template": template, "context": context})
    return out


EXPRESSIONS = r"""
{{ 1 + 2 * 3 - 4 / 2 }}|{{ 7 // 2 }}|{{ -7 // 2 }}|{{ 7 % 3 }}|{{ -7 % 3 }}|{{ 7 % -3 }}|{{ 2 ** 10 }}|{{ 2 ** -1 }}|{{ -2 ** 2 }}
{{ 2 ** 3 ** 2 }}|{{ 7.5 // 2 }}|{{ -7.5 % 2 }}|{{ 1e3 }}|{{ 1.0 }}|{{ 0.1 + 0.2 }}|{{ 1e16 }}|{{ 1e15 }}|{{ 123456789.125 }}
{{ 1e-5 }}|{{ 0.0001 }}|{{ 1.5e300 * 1e10 }}|{{ 5 / 2 }}|{{ 4 / 2 }}|{{ 1_000_000 }}|{{ 0x1F }}|{{ 0b101 }}|{{ 0o17 }}|{{ 1_0.5_0 }}
{{ 9223372036854775807 }}|{{ -9223372036854775807 - 1 }}|{{ 3 == 3.0 }}|{{ 1 == true }}|{{ 'a' < 'b' }}|{{ [1, 2] < [1, 3] }}
{{ 1 < 2 < 3 }}|{{ 1 < 3 < 2 }}|{{ 1 < 2 > 0 == false }}|{{ 'a' in 'abc' }}|{{ 'x' not in 'abc' }}|{{ 1 in [1, 2] }}|{{ 'a' in d }}
{{ 0 or 'x' }}|{{ 0 and 'x' }}|{{ '' or none }}|{{ not 0 }}|{{ not not 1 }}|{{ not 1 == 2 }}|{{ 1 if true else 2 }}|{{ 1 if false }}
{{ 'a' ~ 1 ~ none ~ true ~ 1.5 }}|{{ 'a' * 3 }}|{{ [1] * 2 }}|{{ [1] + [2] }}|{{ (1,) + (2,) }}|{{ 'ab' 'cd' }}|{{ () }}|{{ (1,) }}|{{ (1, 2) }}
{{ 'a\nb\t\'\"\\' }}|{{ '\x41\u00e9\U0001F600\101\q' }}|{{ "it's" }}|{{ ["it's", 'say "x"', 'b\\s', '\n\x00\x7f\u200b\u00e9'] }}
{{ {'a': 1, 2: [true, none], 'c': {'x': 1.5}} }}|{{ {} }}|{{ [] }}|{{ {1: 2, 1.0: 3, true: 4} }}|{{ [1, 2,] }}|{{ {'a': 1,} }}
{{ xs[0] }}{{ xs[-1] }}{{ xs[9] }}|{{ xs[::-1] }}|{{ xs[1:] }}|{{ xs[:-1] }}|{{ s[::2] }}|{{ s[-3:] }}|{{ s[3:1] }}|{{ s[100:] }}|{{ s[::-3] }}
{{ 'ünïcødé'[2:5] }}|{{ 'ünïcødé'[::-1] }}|{{ 'ünïcødé'[-2] }}|{{ (1, 2, 3)[1:] }}|{{ range(10)[2:5] }}|{{ range(10)[-1] }}
{{ d.a }}|{{ d['a'] }}|{{ d.items() | list }}|{{ d['items'] }}|{{ d.nope }}|{{ d['nope'] is defined }}|{{ d.b.0 }}|{{ d.b[1] }}
{{ d.get('a') }}|{{ d.get('z') }}|{{ d.get('z', 5) }}|{{ d.keys() }}|{{ d.values() }}|{{ d.items() }}|{{ d.copy() }}|{{ d.keys() | list }}
{{ undefined_thing }}|{{ undefined_thing is defined }}|{{ undefined_thing == other }}|{{ [undefined_thing] }}|{{ undefined_thing ~ 'x' }}
{{ nil }}|{{ nil is none }}|{{ yes }}|{{ true }}{{ True }}{{ false }}{{ False }}{{ none }}{{ None }}|{{ -n }}|{{ +n }}|{{ - - n }}|{{ -n | abs }}
{{ 1 is odd }}|{{ 2 is even }}|{{ 6 is divisibleby 3 }}|{{ 6 is divisibleby(4) }}|{{ 1 is not odd }}|{{ n is number }}|{{ s is string }}|{{ xs is iterable }}
{{ xs is sequence }}|{{ d is mapping }}|{{ d is sequence }}|{{ n is iterable }}|{{ 1.5 is float }}|{{ 1 is integer }}|{{ true is integer }}|{{ true is number }}
{{ true is boolean }}|{{ 1 is boolean }}|{{ 1 is true }}|{{ true is true }}|{{ false is false }}|{{ none is none }}|{{ n is eq 7 }}|{{ n is equalto(8) }}
{{ n is gt 3 }}|{{ n is lt 3 }}|{{ n is ge 7 }}|{{ n is le 7 }}|{{ n is ne 7 }}|{{ 'a' is in 'abc' }}|{{ 1 is in [2] }}|{{ 'abc' is lower }}|{{ 'ABC' is upper }}
{{ 'upper' is filter }}|{{ 'nope' is filter }}|{{ 'odd' is test }}|{{ range is callable }}|{{ s is callable }}|{{ none is sameas none }}|{{ 1 is sameas true }}
{{ x is undefined or y }}|{{ 1 if x is defined else 2 }}|{{ 1 is eq 1 and 2 is eq 2 }}|{{ n is number and s is string }}|{{ not n is string }}
{{ range(5) | list }}|{{ range(1, 4) | list }}|{{ range(5, 0, -2) | list }}|{{ range(0) | list }}|{{ range(3) }}|{{ range(1, 9, 3) }}|{{ 2 in range(3) }}
{{ dict(a=1, b=2) }}|{{ dict([('a', 1)]) }}|{{ dict({'x': 1}, y=2) }}|{{ namespace(a=1) }}|{{ namespace(a=1).a }}|{{ namespace({'a': 2}).a }}
{{ 1 if 0 else 2 if 0 else 3 }}|{{ (1 if 0) is defined }}|{{ [1 if 0] }}|{{ 'x' if 'a' in d and d.a == 1 else 'y' }}|{{ 1 + (2 if 1 else 3) }}
{{ '%s and %s' % ('a', 1) }}|{{ '%d%%' % 5 }}|{{ '%05d|%-5d|%+d' % (42, 42, 42) }}|{{ '%.2f|%8.3f|%e|%g' % (1.5, 2.25, 12345.678, 0.00001) }}
{{ '%x %X %o %#x' % (255, 255, 8, 255) }}|{{ '%s' % none }}|{{ '%s' % [1] }}|{{ '%r' % 'a' }}|{{ '%(a)s-%(b)s' % {'a': 1, 'b': 2} }}|{{ '%5s|%-5s|%.2s' % ('ab', 'ab', 'abc') }}
{{ '%c%c' % (65, 'B') }}|{{ '%*d' % (5, 3) }}|{{ '{} {}'.format(1, 'a') }}|{{ '{1} {0}'.format(1, 2) }}|{{ '{x} {y.a}'.format(x=1, y=d) }}|{{ '{0[a]}'.format(d) }}
{{ '{:>5}|{:<5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd') }}|{{ '{:05d} {:,} {:x} {:#b} {:+}'.format(42, 1234567, 255, 5, 3) }}|{{ '{:.2f} {:8.3f} {:e} {:%}'.format(1.005, 2.5, 1234.5, 0.25) }}
{{ '{!r} {!s}'.format('a', 'b') }}|{{ '{{}} {}'.format(1) }}|{{ '{:{}}|'.format('a', 5) }}|{{ '{:.3}'.format('abcdef') }}|{{ '{:.3}|{:.10}|{}'.format(3.14159, 2.0, 1e22) }}
{{ s is string is true }}|{{ 1 is eq(1) }}|{{ [1,2,3][1] }}|{{ {'a': 1}['a'] }}|{{ {'a': 1}.a }}|{{ 'abc'[1] }}|{{ 'abc'.1 }}|{{ (s | upper)[0] }}|{{ s | upper | lower }}
{{ 5 | string ~ 'x' }}|{{ -5 | abs }}|{{ 2 + 3 | string | length }}|{{ not none is none }}|{{ 3 in xs and 9 not in xs }}|{{ 'a' in none | default([]) }}
""".strip().replace("\n", "|").split("|{{")

EXPRESSIONS = [e if e.startswith("{{") else "{{" + e for e in EXPRESSIONS]

METHODS = [
    "{{ '  a b '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abc'.lstrip('ab') }}|{{ 'abc'.rstrip('cb') }}|{{ '\\u00a0\\u2003x\\u3000'.strip() }}|",
    "{{ 'a b  c'.split() }}{{ 'a,b,c'.split(',') }}{{ 'a,b,c'.split(',', 1) }}{{ ''.split() }}{{ ''.split(',') }}{{ ' a  b '.split(' ') }}",
    "{{ 'a b  c'.split(none, 1) }}{{ ' a b c '.split(maxsplit=1) }}{{ 'a,b,c'.rsplit(',', 1) }}{{ ' a b c '.rsplit(none, 1) }}{{ 'a,b'.split(sep=',') }}{{ 'abc'.rsplit('x') }}",
    "{{ 'a\\nb\\r\\nc\\n'.splitlines() }}{{ 'a\\nb'.splitlines(true) }}{{ ''.splitlines() }}{{ 'a\\u2028b\\x0bc'.splitlines() }}{{ '\\n'.splitlines() }}",
    "{{ 'aXbX'.replace('X', '-') }}{{ 'aaa'.replace('a', 'b', 2) }}{{ 'abc'.replace('', '-') }}{{ 'abc'.replace('', '-', 2) }}{{ 'é'.replace('', '.') }}",
    "{{ 'abc'.startswith('a') }}{{ 'abc'.startswith(('x', 'ab')) }}{{ 'abc'.endswith('bc') }}{{ 'abc'.startswith('b', 1) }}{{ 'abc'.endswith('b', 0, 2) }}{{ 'abc'.startswith('') }}",
    "{{ 'abcabc'.find('c') }}{{ 'abcabc'.find('c', 3) }}{{ 'abc'.find('x') }}{{ 'abcabc'.rfind('b') }}{{ 'abc'.index('b') }}{{ 'éabc'.find('b') }}{{ 'abcabc'.count('bc') }}{{ 'aaa'.count('') }}",
    "{{ 'hello world'.title() }}{{ \"it's ok\".title() }}{{ 'HELLO'.capitalize() }}{{ 'Abc'.swapcase() }}{{ 'straße'.upper() }}{{ 'ΑΣ'.lower() }}{{ 'ǆ'.title() }}{{ 'İ'.lower() | length }}{{ 'ŉ'.upper() }}",
    "{{ ','.join(['a', 'b']) }}{{ ', '.join(d) }}{{ ''.join(('x', 'y')) }}{{ '-'.join('abc') }}{{ ','.join([]) }}",
    "{{ '12'.isdigit() }}{{ '1a'.isdigit() }}{{ ''.isdigit() }}{{ 'é'.isalpha() }}{{ 'a1'.isalnum() }}{{ ' \\t'.isspace() }}{{ 'A1'.isupper() }}{{ 'a1'.islower() }}{{ '²'.isdigit() }}{{ '²'.isdecimal() }}{{ 'Ab Cd'.istitle() }}",
    "{{ 'prefix-x'.removeprefix('prefix-') }}{{ 'x.py'.removesuffix('.py') }}{{ 'abc'.removeprefix('x') }}{{ '7'.zfill(3) }}{{ '-7'.zfill(4) }}{{ 'a'.center(4, '*') }}{{ 'ab'.center(5, '*') }}{{ 'a'.ljust(3, '.') }}{{ 'a'.rjust(3) }}",
    "{{ 'a=b=c'.partition('=') }}{{ 'a=b=c'.rpartition('=') }}{{ 'abc'.partition('=') }}{{ 'abc'.rpartition('=') }}{{ 'a\\tb'.expandtabs(4) }}",
    "{{ xs.index(1) }}{{ xs.count(3) }}{{ xs.copy() }}{{ (1, 2, 1).count(1) }}{{ (1, 2).index(2) }}",
    "{{ '<think>a</think>b'.split('</think>')[0].split('<think>')[-1] }}|{{ 'x</think>y</think>z'.split('</think>')[-1].lstrip('\\n') }}",
]

FILTERS = [
    "{{ 'a' | default('x') }}{{ q | default('x') }}{{ q | d }}{{ '' | default('x', true) }}{{ none | default('x') }}{{ none | default('x', boolean=true) }}",
    "{{ xs | sort }}{{ xs | sort(reverse=true) }}{{ ['b', 'A', 'c'] | sort }}{{ ['b', 'A'] | sort(case_sensitive=true) }}{{ users | sort(attribute='age,name') | map(attribute='name') | list }}",
    "{{ users | sort(true, attribute='name') | map(attribute='name') | join(',') }}{{ d | dictsort }}{{ {'b': 1, 'A': 2} | dictsort(true) }}{{ {'b': 1, 'a': 2} | dictsort(false, 'value') }}{{ {'b': 1, 'a': 2} | dictsort(reverse=true) }}",
    "{{ xs | first }}{{ xs | last }}{{ [] | first }}{{ 'abc' | first }}{{ 'abc' | last }}{{ xs | min }}{{ xs | max }}{{ [] | max }}{{ users | max(attribute='age') }}{{ ['b', 'A'] | min }}{{ xs | sum }}{{ users | sum('age') }}{{ xs | sum(start=10) }}",
    "{{ xs | join }}{{ xs | join('-') }}{{ users | join(', ', attribute='name') }}{{ [1, none, 'a', [2]] | join('|') }}{{ 'abc' | join('.') }}",
    "{{ 'abc' | list }}{{ d | list }}{{ xs | length }}{{ s | count }}{{ d | length }}{{ 'é' | length }}{{ xs | reverse | list }}{{ 'abc' | reverse }}",
    "{{ users | groupby('age') | map('first') | list }}{% for age, us in users | groupby('age') %}{{ age }}:{{ us | map(attribute='name') | join('+') }};{% endfor %}{% for g in users | groupby('city') %}{{ g.grouper }}={{ g.list | length }} {% endfor %}",
    "{{ users | selectattr('on') | map(attribute='name') | list }}{{ users | rejectattr('on') | list | length }}{{ users | selectattr('age', 'gt', 26) | map(attribute='name') | join }}{{ users | selectattr('name', 'equalto', 'Bob') | first }}",
    "{{ xs | select('odd') | list }}{{ xs | reject('odd') | list }}{{ [0, 1, '', 'a', none] | select | list }}{{ [0, 1, ''] | reject | list }}{{ xs | select('gt', 1) | list }}{{ xs | select('in', [1, 2]) | list }}{{ [1, 'a'] | select('string') | list }}",
    "{{ ['a', 'b'] | map('upper') | list }}{{ xs | map('string') | join('+') }}{{ users | map(attribute='nope', default='?') | list }}{{ users | map(attribute='name') | map('lower') | list }}{{ [[1, 2], [3]] | map('join', '-') | list }}{{ users | map(attribute='name.0') | join }}",
    "{{ [1, 2, 1, 3, 2] | unique | list }}{{ ['a', 'A', 'b'] | unique | list }}{{ ['a', 'A'] | unique(true) | list }}{{ users | unique(attribute='age') | map(attribute='name') | list }}",
    "{{ [1, 2, 3, 4, 5] | batch(2) | list }}{{ [1, 2, 3] | batch(2, 0) | list }}{{ [1, 2, 3, 4, 5] | slice(2) | list }}{{ [1, 2, 3] | slice(2, 'x') | list }}",
    "{{ 'hello world' | title }}{{ \"it's a-b (c) <d\" | title }}{{ 'HELLO' | capitalize }}{{ 'a' | upper }}{{ 'A' | lower }}{{ 1 | upper }}{{ none | upper }}",
    "{{ '  a ' | trim }}|{{ 'xax' | trim('x') }}|{{ 'abc' | replace('b', 'X') }}|{{ 'aaa' | replace('a', 'b', 2) }}|{{ 121 | replace(1, 3) }}|{{ 'a' | center(5) }}|",
    "{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb' | indent(2, true) }}|{{ 'a\\n\\nb' | indent(2, blank=true) }}|{{ 'a\\nb' | indent('> ') }}|{{ 'a\\n' | indent(2) }}|{{ '' | indent(2, true) }}|",
    "{{ 'foo bar baz qux' | truncate(9) }}|{{ 'foo bar baz qux' | truncate(9, true) }}|{{ 'foo bar baz qux' | truncate(11) }}|{{ 'foo bar baz qux' | truncate(11, false, '...', 0) }}|{{ 'abcdefghijkl' | truncate(5, end='…', leeway=0) }}",
    "{{ '42' | int }}{{ '4x' | int }}{{ '4x' | int(7) }}{{ '3.9' | int }}{{ 3.9 | int }}{{ -3.9 | int }}{{ '0x1f' | int(0, 16) }}{{ '101' | int(base=2) }}{{ true | int }}{{ none | int }}{{ ' 5 ' | int }}{{ '1_000' | int }}{{ [] | int }}",
    "{{ '1.5' | float }}{{ 'x' | float }}{{ 'x' | float(2.5) }}{{ 3 | float }}{{ '1e3' | float }}{{ ' 2 ' | float }}{{ 'inf' | float }}{{ 'nan' | float }}{{ true | float }}",
    "{{ 2.5 | round }}{{ 3.5 | round }}{{ 42.55 | round(1) }}{{ 42.55 | round(1, 'floor') }}{{ 42.45 | round(1, 'ceil') }}{{ 7 | round }}{{ 2.675 | round(2) }}{{ 1234 | round(-2) }}{{ 1250.0 | round(-2) }}{{ -2.5 | round }}{{ -0.4 | round }}{{ 42.55 | round | int }}",
    "{{ '%s-%s' | format(1, 2) }}{{ '%(a)s' | format(a=5) }}{{ 'x' | format }}{{ '<b>&\"' | e }}{{ \"'\" | escape }}{{ ('<' | e) ~ '<' }}{{ ('<' | e) + '<' }}{{ '<' | safe }}{{ ['<' | e] }}{{ '<a>x  <!-- c --> y</a>' | striptags }}",
    "{{ d | tojson }}{{ [1, 1.0, 1.5, true, none, 'é', \"a'b\"] | tojson }}{{ '<&>\\u2028\\x7f\\x01\\n' | tojson }}{{ 'é😀' | tojson(ensure_ascii=true) }}{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}{{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }}",
    "{{ d | tojson(indent=2) }}{{ [] | tojson(indent=2) }}{{ {} | tojson(indent=4) }}{{ [[], {}] | tojson(indent=1) }}{{ d | tojson(indent='--') }}{{ d | tojson(separators=(',', ':')) }}{{ d | tojson(indent=0) }}{{ [1, [2]] | tojson(indent=2, separators=(', ', ' : ')) }}",
    "{{ 1e400 | tojson }}{{ (0.1 + 0.2) | tojson }}{{ 1e22 | tojson }}{{ 1e21 | tojson }}{{ 123456789012345680.0 | tojson }}{{ -0.0 | tojson }}{{ 5e-324 | tojson }}{{ 1.7976931348623157e308 | tojson }}{{ 2.5e-7 | tojson }}{{ (1, 2) | tojson }}"[17:],
    "{{ 'a b/c?é' | urlencode }}{{ {'a b': 'c/d', 'e': 1} | urlencode }}{{ [('a', 1), ('b', 'x y')] | urlencode }}{{ 'foo bar, baz-qux' | wordcount }}{{ d | items | list }}{{ q | items | list }}{{ d | attr('keys') is callable }}{{ d | attr('a') is defined }}",
    "{{ -5 | abs }}{{ 1.5 | abs }}{{ 'x' | string }}{{ 5 | string | length }}{{ none | string }}{{ xs | string }}{{ [3, 1] | sort | first }}{{ 'abc' | list | last }}{{ xs | map('float') | list }}",
    "{{ (xs | select('odd')) is iterable }}{% set g = xs | select('odd') %}{{ g | list }}{{ g | list }}{% if xs | select('gt', 5) %}generators are true{% endif %}",
    "{% filter upper %}a{{ n }}b{% endfilter %}{% filter replace('a', 'b') | trim %} aa {% endfilter %}",
]

STATEMENTS = [
    "{% for x in xs %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ loop.depth }}/{{ loop.depth0 }};{% endfor %}",
    "{% for x in xs %}[{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }}]{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for x in xs %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{% endfor %}{% for x in [] %}a{% else %}empty{% endfor %}{% for x in q %}a{% else %}undefined{% endfor %}",
    "{% for x in xs if x > 1 %}{{ loop.index }}{{ x }}{{ loop.length }}{{ loop.last }}{% else %}none{% endfor %}{% for x in xs if x > 9 %}{{ x }}{% else %}none{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for (a, b) in [(1, 2), [3, 4], 'xy'] %}{{ a }}{{ b }}{% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for c in 'héy' %}{{ c }}.{% endfor %}{% for i in range(3) %}{% for j in range(2) %}{{ loop.index }}{{ i }}{{ j }} {% endfor %}{{ loop.index }}{% endfor %}",
    "{% for x in xs %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}{% for x in xs %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}E{% endfor %}{% for x in xs %}{% break %}{% else %}E{% endfor %}{% for x in xs %}{% continue %}{% else %}E{% endfor %}",
    "{% set x = 1 %}{% for i in xs %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}",
    "{% set ns = namespace(x=0, found=false) %}{% for i in xs %}{% set ns.x = ns.x + i %}{% if i == 1 %}{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.x }}{{ ns.found }}{{ ns.nope }}{{ ns['x'] }}",
    "{% if n > 5 %}a{% elif n > 3 %}b{% else %}c{% endif %}{% if n > 9 %}a{% elif n > 3 %}b{% else %}c{% endif %}{% if n > 9 %}a{% elif n > 8 %}b{% else %}c{% endif %}{% if q %}q{% endif %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a, b = b, a %}{{ a }}{{ b }}{% set (c, d) = [3, 4] %}{{ c }}{{ d }}{% set t = 1, %}{{ t }}{% set e = () %}{{ e }}",
    "{% set x %}a{{ n }}b{% endset %}{{ x }}{{ x is string }}{% set y | upper | trim %} q {% endset %}[{{ y }}]{% set ns = namespace() %}{% set ns.b %}in{% endset %}{{ ns.b }}",
    "{% macro m(a, b='B', c=none) %}({{ a }},{{ b }},{{ c }}){% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(1, c=3) }}{{ m(b=5, a=4) }}{{ m() }}{{ m.name }}{{ m.arguments }}",
    "{% macro m(a) %}{{ varargs }}{{ kwargs }}{{ a }}{% endmacro %}{{ m(1, 2, 3, x=4) }}{{ m() }}{% macro k(a, b=a ~ '!') %}{{ b }}{% endmacro %}{{ k('x') }}",
    "{% macro r(n) %}{{ n }}{% if n > 0 %},{{ r(n - 1) }}{% endif %}{% endmacro %}{{ r(3) }}{% macro outer() %}{{ later }}{% endmacro %}{% set later = 'L' %}{{ outer() }}",
    "{% macro box(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call box('p') %}in {{ n }}{% endcall %}{% macro lst(xs) %}{% for x in xs %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(x, i) lst(xs) %}{{ i }}={{ x }};{% endcall %}",
    "{% macro m() %}{{ caller is defined }}{{ caller() if caller else 'no' }}{% endmacro %}{{ m() }}{% call m() %}yes{% endcall %}",
    "{% with %}{% set x = 1 %}{{ x }}{% endwith %}{{ x }}{% with a = 1, b = n %}{{ a + b }}{% endwith %}{{ a }}{% set a = 5 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% generation %}{{ n }}{% set inner = 1 %}{{ inner }}{% endgeneration %}{{ inner }}{% for x in xs %}{% generation %}{{ x }}{{ loop.index }}{% endgeneration %}{% endfor %}",
    "{% raw %}{{ x }}{% if %}{# #}{% endraw %}|{%- raw -%} a {%- endraw -%} b|{% raw %}\n a\n{% endraw %}\nc",
    "{% print 1, 2 %}{% print n %}{% if true: %}colon{% endif %}{%- for x in xs: -%} {{ x }} {%- endfor -%}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}{% set j = joiner('; ') %}{% for x in xs %}{{ j() }}{{ x }}{% endfor %}",
    "{{ strftime_now('%Y-%m-%d') }}|{{ strftime_now('%d %b %Y %H:%M:%S %A %B') }}|{{ strftime_now('') }}|{{ strftime_now('%%é') }}",
    "{% for m in [{'role': 'a'}, {'role': 'a'}, {'role': 'b'}] %}{% if loop.first or loop.previtem.role != m.role %}<{{ m.role }}>{% endif %}x{% if loop.last or loop.nextitem.role != m.role %}</{{ m.role }}>{% endif %}{% endfor %}",
    "{% for x in xs | reverse %}{{ x }}{{ loop.length }}{% endfor %}{% for x in xs | map('string') %}{{ loop.revindex }}{{ x }}{{ loop.last }}{% endfor %}{% for x in xs[::-1] %}{{ x }}{% endfor %}",
    "{% if not tools is defined %}{% set tools = none %}{% endif %}{{ tools }}{% if x is not defined %}{% set x = 'D' %}{% endif %}{{ x }}",
    "{% for i in [1] %}{{ n }}{% endfor %}{% set n = 1 %}{% for i in [1] %}{{ n }}{% endfor %}",
    "{% macro m() %}{{ n }}{% endmacro %}{{ m() }}{% if false %}{% set n = 2 %}{% endif %}{{ n }}{{ m() }}",
    "{# comment #}a{#- trim -#} b {#+ keep +#} c{# multi\nline #}d",
    "a\r\nb\rc\n", "trailing\n", "trailing\n\n", "\n", "", "{", "{{ '{{' }}{{ '}}' }}{{ '%}' }}", "{{ {'a': {'b': 1}}['a']['b'] }}", "a{#", "} }} %} #}",
]

ERRORS = [
    "{{ undefined_thing.x }}", "a\n{{ d.nope.x }}", "{{ d['nope']['x'] }}", "{{ undefined_thing() }}", "{{ undefined_thing + 1 }}", "{{ 1 + undefined_thing }}",
    "{{ 'a' + undefined_thing }}", "{{ undefined_thing < 1 }}", "{{ -undefined_thing }}", "{{ xs.nope() }}", "{{ xs.append(1) }}", "{{ d.pop('a') }}", "{{ d.update({}) }}", "{{ d.clear() }}",
    "{{ d.__class__ }}{{ d.__class__.x }}", "{{ s.__class__() }}", "\n\n{{ raise_exception('Own message: ' ~ n) }}", "{% if true %}\n{{ raise_exception('line two') }}{% endif %}",
    "{% macro m() %}\n{{ raise_exception('in macro') }}\n{% endmacro %}\n\n{{ m() }}", "{% for x in xs %}\n{{ raise_exception('in loop') }}\n{% endfor %}", "{% set x = raise_exception('in set') %}",
    "{{ 1 + 'a' }}", "{{ 'a' + 1 }}", "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ 'a' < 1 }}", "{{ [] + () }}", "{{ none + 1 }}", "{{ {[]: 1} }}", "{{ 1 in 2 }}", "{{ 1 in 'a' }}", "{{ n() }}", "{{ s() }}",
    "{{ xs | length() | nofilter }}", "{{ n is nosuchtest }}", "{% if false %}{{ n | nofilter }}{% endif %}ok", "{% if true %}\n{{ n | nofilter }}{% endif %}", "{{ 1 if true else n | nofilter }}",
    "{% if %}", "{% for %}", "{% for x in %}", "{% for x xs %}", "{% endif %}", "{% if true %}", "{% if true %}{% endfor %}", "{% for x in xs %}{% endif %}", "\n{% for x in xs %}\n{% if x %}\n{% endfor %}", "{% nosuchtag %}", "{% else %}",
    "{{ }}", "{{ 1 + }}", "{{ (1 }}", "{{ [1 }}", "{{ 1) }}", "{{ {'a' 1} }}", "{{ 'abc }}", "{{ \"abc }}", "{{ a b }}", "{{ 1 2 }}", "{{ a. }}", "{{ a.'b' }}", "{{ a[ }}", "{{ a | }}", "{{ a is }}", "{{ a is b is c }}", "{{ ! }}", "{{ a ? b }}", "{{ $x }}",
    "{% set %}", "{% set 1 = 2 %}", "{% set x.y.z = 1 %}", "{% set true = 1 %}", "{% set x = %}", "{% set x.y = 1 %}", "{% set n.y = 1 %}", "{% macro %}", "{% macro m %}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m(a %}", "{% call x %}{% endcall %}",
    "{{ f(a=1, 2) }}", "{{ f(*a, 1) }}", "{{ f(**a, b) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=1) }}", "{# unclosed", "{% raw %}unclosed", "{{ unclosed", "{% if unclosed", "{% for loop in xs %}{% endfor %}",
    "{% for x in xs %}{% set loop = 1 %}{% endfor %}", "{% for a, b in xs %}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for x in n %}{% endfor %}", "{% for x in none %}{% endfor %}", "{% set a, b = 1 %}", "{% set a, b = (1, 2, 3) %}", "{% set a, b = [1] %}",
    "{{ range(100001) }}", "{{ range(1, 2, 0) }}", "{{ range() }}", "{{ range('a') }}", "{{ namespace(1) }}", "{{ [1, 'a'] | sort }}", "{{ [1, 'a'] | min }}", "{{ 'a' | abs }}", "{{ 5 | length }}", "{{ 5 | list }}", "{{ 5 | first }}", "{{ 5 | join }}", "{{ none | length }}",
    "{{ (xs | select('odd')) | length }}", "{{ q | tojson }}", "{{ range(3) | tojson }}", "{{ namespace() | tojson }}", "{{ {(1, 2): 3} | tojson }}", "{{ xs | map | list }}", "{{ xs | map('nofilter') | list }}", "{{ xs | select('notest') | list }}", "{{ xs | selectattr | list }}", "{{ users | groupby }}",
    "{{ q | int }}", "{{ q | float }}", "{{ q | indent }}", "{{ q | dictsort }}", "{{ 5 | dictsort }}", "{{ 5 | items | list }}", "{{ 'x' | round }}", "{{ 1.5 | round(1, 'up') }}", "{{ 'abc' | truncate(2) }}", "{{ 'a'.index('x') }}", "{{ xs.index(99) }}", "{{ 'a'.split('') }}", "{{ ','.join(xs) }}", "{{ 'a'.replace('a') }}", "{{ 'a'.startswith(1) }}",
    "{{ '%d' % 'a' }}", "{{ '%s %s' % 'a' }}", "{{ '%s' % ('a', 'b') }}", "{{ '%z' % 1 }}", "{{ '%' % 1 }}", "{{ '{} {}'.format(1) }}", "{{ '{'.format(1) }}", "{{ '}'.format(1) }}", "{{ '{a}'.format(1) }}", "{{ '{:d}'.format('a') }}", "{{ '{:x}'.format(1.5) }}",
    "{{ loop.index }}", "{{ xs[::0] }}", "{{ xs['a':] }}", "{{ s.nope.nope }}", "{{ none.x.y }}", "{{ n.x.y }}", "{{ [] | first | upper ~ ([] | first).x }}", "{{ (1 if false).x }}", "{% for x in xs %}{{ loop.previtem.x }}{% endfor %}", "{{ caller() }}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m(a) %}{{ a.x }}{% endmacro %}{{ m() }}",
    "{{ d | tojson(nope=1) }}", "{{ 'x' | upper(1) }}", "{{ strftime_now() }}", "{{ raise_exception() }}", "{{ dict(1) }}", "{{ dict([1]) }}", "{{ '\\x4' }}", "{{ '\\u12' }}", "{{ 1 is divisibleby }}", "{{ 1 is divisibleby 0 }}", "{{ 'a' is odd }}", "{{ none is odd }}",
    "line1\nline2 {{ n }}\n  {{ n.x.y }}\nline4", "{%- set a = 1 -%}\n\n{%- set b = a.b.c -%}", "{% filter upper %}\n{{ n.x.y }}\n{% endfilter %}", "{% set v %}\n\n{{ n.x.y }}{% endset %}", "{% call nope() %}{% endcall %}", "a\n{% filter nope %}{% endfilter %}",
]

UNICODE = [
    "{{ x.upper() }}|{{ x.lower() }}|{{ x.title() }}|{{ x.capitalize() }}|{{ x | title }}|{{ x.swapcase() }}",
    "{% for c in x %}{{ c.isalpha() }}{{ c.isdigit() }}{{ c.isalnum() }}{{ c.isspace() }}{{ c.isupper() }}{{ c.islower() }}{{ c.istitle() }}{{ c.isdecimal() }};{% endfor %}",
    "{{ [x] }}|{{ x | tojson }}|{{ x | tojson(ensure_ascii=true) }}|{{ x | length }}|{{ x[::-1] }}|{{ x.split() }}|{{ x.splitlines() }}|{{ x | wordcount }}|{{ x | urlencode }}|{{ x.strip() }}",
]


def unicode_cases():
    rng = random.Random(5)
    out = []
    import unicodedata
    points = [c for c in range(0x20, 0x30000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co") and c != 0x7F]
    special = [c for c in points if len(chr(c).upper()) > 1 or chr(c).title() != chr(c).upper() or len(chr(c).lower()) > 1]
    fixed = ["straße ŉ ǰ ΐ ﬁ ﬃ ﬓ İı", "ΑΣ ΑΣ. ΑΣΑ Σ ΣΑ ΑΣ̈ ΑΣ'Α", "ǄǅǆǇǈǉ ǱǲǳⅠⅰⓐⒶ", " \u00a0\u1680\u2000\u2028x\u2029\u202f\u205f\u3000\x1c\x1d\x85",
             "".join(map(chr, special))]
    for i in range(40):
        fixed.append("".join(chr(rng.choice(points if rng.random() < 0.6 else special)) for _ in range(40)))
    for i, text in enumerate(fixed):
        out += simple(f"unicode {i}", [(t, {"x": text}) for t in UNICODE])
    return out


def whitespace_cases():
    out = []
    signs = ["", "-", "+"]
    around = [("a ", " b"), ("a\n  ", "\n  b"), ("  ", "\n"), ("\n", "  \n\n b"), ("a\t", "\tb")]
    for (left, right), l, r in itertools.product(around, signs, signs):
        for body in ("{%" + l + " if true " + r + "%}", "{%" + l + " set x = 1 " + r + "%}", "{#" + l + " c " + r + "#}"):
            end = "{% endif %}" if " if " in body else ""
            out.append(left + body + right + end)
        if r != "+":
            out.append(left + "{{" + (l if l == "-" else "") + " 1 " + r + "}}" + right)
            out.append(left + "{%" + l + " raw " + r + "%} x \n{%" + l + " endraw " + r + "%}" + right)
    for l1, r1, l2, r2 in itertools.product(["", "-"], repeat=4):
        out.append("A \n {%" + l1 + " for x in [1, 2] " + r1 + "%} \n  {{ x }} \n {%" + l2 + " endfor " + r2 + "%} \n B")
    return simple("whitespace", out)


SCOPES = [
    "{% set a = 1 %}{% for i in [1, 2] %}{% set a = a + 1 %}{{ a }}{% endfor %}{{ a }}",
    "{% for i in [1, 2] %}{{ x }}{% set x = i %}{{ x }}{% endfor %}",
    "{% for i in [1] %}{% set n = 5 %}{{ n }}{% endfor %}{{ n }}",
    "{% if yes %}{% set a = 1 %}{% else %}{% set a = 2 %}{% endif %}{{ a }}",
    "{% if nil %}{% set s = 1 %}{% endif %}{{ s }}",
    "{% for i in [1] %}{% if nil %}{% set s = 1 %}{% endif %}{{ s }}{% endfor %}",
    "{% macro m() %}{% set s = 'in' %}{{ s }}{% endmacro %}{{ m() }}{{ s }}",
    "{% macro m() %}{{ s }}{% set s = 'in' %}{{ s }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{% set s = 'in' %}{{ s }}{% endmacro %}{% for i in [1] %}{{ m() }}{{ s }}{% endfor %}",
    "{{ m is defined }}{% macro m() %}{% endmacro %}{{ m is defined }}",
    "{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% set x %}{% set y = 1 %}{{ y }}{% endset %}{{ y }}{{ x }}",
    "{% filter upper %}{% set y = 'q' %}{{ y }}{% endfilter %}{{ y }}",
    "{% for i in xs if i != loop %}{{ i }}{% endfor %}",
    "{% for i in xs %}{% for j in xs if j > i %}{{ i }}{{ j }} {% endfor %}{% endfor %}",
    "{% set i = 9 %}{% for i in xs %}{{ i }}{% else %}{{ i }}{% endfor %}{{ i }}",
    "{% for n in xs if n > 1 %}{{ n }}{% endfor %}{{ n }}",
    "{% for x in [1] %}{{ n }}{% endfor %}{% set n = 3 %}{{ n }}",
    "{% macro a(x) %}{{ b(x) }}{% endmacro %}{% macro b(x) %}[{{ x }}]{% endmacro %}{{ a(1) }}",
    "{% set ns = namespace(a=[]) %}{% for i in xs %}{% set ns.a = ns.a + [i * 2] %}{% endfor %}{{ ns.a }}{{ ns.a | sum }}",
    "{% call(x) m(1) %}{{ x }}{{ n }}{% set n = 4 %}{{ n }}{% endcall %}{% macro m(q) %}{% endmacro %}",
    "{% macro m(q) %}{{ caller(q) }}{{ caller(q + 1) }}{% endmacro %}{% for i in xs %}{% call(x) m(i) %}{{ i }}{{ x }}{{ loop.index }};{% endcall %}{% endfor %}",
    "{% with s = s ~ '!' %}{{ s }}{% with s = s ~ '?' %}{{ s }}{% endwith %}{{ s }}{% endwith %}{{ s }}",
    "{% macro m(a, n=n) %}{{ a }}{{ n }}{% endmacro %}{{ m(1) }}",
    "{% set range = 5 %}{{ range }}", "{{ dict }}{% set dict = 5 %}"[10:], "{% for x in xs %}{% set ns = namespace(v=x) %}{{ ns.v }}{% endfor %}{{ ns is defined }}",
    "{% if s %}{% for x in xs %}{% set s = x %}{% endfor %}{% endif %}{{ s }}", "{% for x in xs %}{% if x == 1 %}{% set f = x %}{% endif %}{{ f }}{% endfor %}",
    "{% set a = b %}{% set b = 1 %}{{ a }}{{ b }}", "{% set n = n + 1 %}{{ n }}{% set n = n + 1 %}{{ n }}",
    "{% for x in xs %}{{ q }}{% endfor %}{% if yes %}{% set q = 1 %}{% endif %}{% for x in xs %}{{ q }}{% endfor %}",
    "{% macro m() %}{% for x in xs %}{% set t = x %}{{ t }}{% endfor %}{{ t }}{% endmacro %}{{ m() }}{{ m() }}",
]


def corpus():
    here = os.path.dirname(os.path.abspath(__file__))
    import jinja_chats
    sets = {
        "expressions": simple("expression", EXPRESSIONS), "methods": simple("method", METHODS),
        "filters": simple("filter", [f for line in FILTERS for f in split_prints(line)]),
        "statements": simple("statement", STATEMENTS), "scopes": simple("scope", SCOPES), "errors": simple("error", ERRORS),
        "unicode": unicode_cases(), "whitespace": whitespace_cases(), "chats": jinja_chats.cases(),
    }
    import jinja_random
    sets["random"] = jinja_random.cases(500, random.Random(20240607))
    return sets


def split_prints(line):
    """Each {{ ... }} of a line as a case of its own; lines with statements stay whole."""
    if "{%" in line:
        return [line]
    return ["{{" + part for part in line.split("{{")[1:]]
