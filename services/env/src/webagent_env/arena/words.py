"""Names that the sites' data is made of. Invented, and each list in a fixed order: worlds are drawn from it."""


def words(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(text.split())


FIRST_NAMES = words(
    "Ada Alma Amos Anna Arlo Aya Ben Bea Carl Cora Dana Dean Edna Eli Emma Ezra Faye Finn Gina Glen Hana Hugo Ida Ivan "
    "Jada Joel June Kara Kurt Lena Leo Lila Luca Mara Max Mila Nadia Nils Nora Omar Opal Otis Paula Pete Quinn Rosa "
    "Ruth Sam Sara Tess Theo Uma Vera Viktor Wanda Will Yara Zoe"
)
LAST_NAMES = words(
    "Abbot Alder Baker Barnes Bell Bishop Brook Carver Chen Clark Cole Cruz Dale Diaz Drake Ellis Evans Fisher Ford "
    "Frost Garcia Gray Hale Hayes Hill Holt Hunt Ito Jensen Katz Kim King Lake Lane Lopez Marsh Mason Moss Nash Novak "
    "Okafor Park Patel Pike Quist Reed Reyes Rossi Shaw Silva Stone Sato Tran Vance Vega Wells West Wood Young Zeller"
)
STREETS = words(
    "Maple Oak Cedar Pine Elm Birch Willow Chestnut Hazel Juniper Mill Bridge River Lake Garden Church School Market "
    "Station Harbor Castle Park Hill Spring Sunset Meadow Orchard Forest Canal Tower"
)
STREET_KINDS = ("Street", "Avenue", "Lane", "Road")
TOWNS = words(
    "Ashford Brookfield Clearwater Dunmore Eastvale Fairhaven Glenwood Hartley Ironbridge Kingsport Lakeside Milford "
    "Northgate Oakridge Pinehurst Riverton Stonebury Thornton Westbrook Windmere"
)
